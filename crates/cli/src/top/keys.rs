//! What a typed key means.

/// A key of `svc top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character that is shown.
    Char(char),
    /// Takes back the last one.
    Backspace,
    /// The cursor one line up or down.
    Up,
    /// See [`Self::Up`].
    Down,
    /// One screen up or down.
    PageUp,
    /// See [`Self::PageUp`].
    PageDown,
    /// The first or last line.
    Home,
    /// See [`Self::Home`].
    End,
    /// Return.
    Enter,
    /// Escape alone.
    Escape,
    /// Ctrl-C or ctrl-D.
    Interrupt,
}

/// The keys in bytes as a terminal sends them. Sequences that mean nothing here are left out whole, so
/// that their letters are not taken for commands.
pub fn read(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        match first {
            0x1b => {
                let (key, left) = escape(rest);
                keys.extend(key);
                bytes = left;
            }
            b'\r' | b'\n' => keys.push(Key::Enter),
            3 | 4 => keys.push(Key::Interrupt),
            8 | 0x7f => keys.push(Key::Backspace),
            0x20..=0x7e => keys.push(Key::Char(char::from(first))),
            0xc2..=0xf4 => {
                let (key, left) = beyond_ascii(first, rest);
                keys.extend(key);
                bytes = left;
            }
            _ => {}
        }
    }
    keys
}

/// The character that begins with this byte of UTF-8, and what follows it; none where it is torn.
fn beyond_ascii(first: u8, rest: &[u8]) -> (Option<Key>, &[u8]) {
    let more = [0xe0, 0xf0].iter().filter(|least| first >= **least).count() + 1;
    let Some((own, left)) = rest.split_at_checked(more) else { return (None, &[]) };
    match std::str::from_utf8(&[&[first], own].concat()).ok().and_then(|text| text.chars().next()) {
        Some(c) => (Some(Key::Char(c)).filter(|_| !c.is_control()), left),
        None => (None, rest),
    }
}

/// The key of a sequence after its escape, and what follows it.
fn escape(bytes: &[u8]) -> (Option<Key>, &[u8]) {
    let Some((b'[' | b'O', rest)) = bytes.split_first() else { return (Some(Key::Escape), bytes) };
    let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 1);
    let (sequence, left) = rest.split_at(end);
    let key = match sequence {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        b"H" | b"1~" => Some(Key::Home),
        b"F" | b"4~" => Some(Key::End),
        _ => None,
    };
    (key, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_no_letters_and_unknown_sequences_are_left_out() {
        assert_eq!(
            read(b"j\x1b[A\x1bOBq\r"),
            [Key::Char('j'), Key::Up, Key::Down, Key::Char('q'), Key::Enter]
        );
        assert_eq!(read(b"\x1b"), [Key::Escape]);
        assert_eq!(read(b"\x1b[1;5Ax\x1b[15~\x03"), [Key::Char('x'), Key::Interrupt]);
        assert_eq!(read(b"\x1b[5~\x1b[6~\x1b[H\x1b[F"), [Key::PageUp, Key::PageDown, Key::Home, Key::End]);
        assert_eq!(read(b"\t"), []);
    }

    #[test]
    fn words_of_all_languages_are_letters_and_what_is_torn_is_none() {
        let letters = |text: &str| text.chars().map(Key::Char).collect::<Vec<_>>();
        assert_eq!(read("aüé界🙂 b".as_bytes()), letters("aüé界🙂 b"));
        assert_eq!(read(b"\x7f\x08"), [Key::Backspace, Key::Backspace]);
        assert_eq!(read(&"界".as_bytes()[..2]), []);
        assert_eq!(read(b"\xc3(\xffx"), letters("(x"));
        assert_eq!(read("\u{9b}A".as_bytes()), letters("A"), "it would steer a terminal");
    }
}
