//! How values of the core stand in a recording: field after field without names, numbers in as few bytes as
//! they need. Types derive it ([`svc_recorded`]); what stands here are the types of the standard library,
//! and JSON.
//!
//! Reading never fails half-way: whatever is missing is empty, and [`Reader::finish`] says so in the end.

#![allow(improper_ctypes_definitions, reason = "only Rust calls what cannot unwind")]

use crate::sorted::Gather;
use crate::time::Time;
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
pub use svc_recorded::Recorded;

/// What can be recorded.
pub trait Recorded: Sized {
    /// Of the definition of this type and of all in it: equal numbers read each other's recordings.
    const SHAPE: u64;

    /// Adds the value.
    fn write(&self, to: &mut Vec<u8>);

    /// Takes a value off. Nothing in it panics; that it cannot unwind, as its calling convention says,
    /// saves each type the code that would take half of a value apart again.
    extern "C" fn read(from: &mut Reader) -> Self;
}

/// Texts of `&'static str` that a process reads at most, and their bytes each; a further one
/// is broken.
const MAX_WORDS: usize = 4096;
const MAX_WORD_BYTES: usize = 1024;
/// Bytes of a first line that are kept.
const MAX_LINE_BYTES: usize = 4096;
/// JSON within JSON at most.
const MAX_DEPTH: u32 = 128;

/// Bytes to be read.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    is_broken: bool,
    depth: u32,
    /// Whether words of people and agents are left out.
    is_wordless: bool,
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_broken: false, depth: 0, is_wordless: false }
    }

    /// Reads these bytes without the words of people and agents: of a text with a blank in it every letter
    /// becomes an `x`. Names, paths and ids stay, and so do lengths.
    pub fn wordless(bytes: &'a [u8]) -> Self {
        Self { is_wordless: true, ..Self::new(bytes) }
    }

    /// Whether all was there, and nothing is left.
    pub fn finish(&self) -> bool {
        !self.is_broken && self.rest.is_empty()
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether something was missing.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn broken(&mut self) {
        (self.rest, self.is_broken) = (&[], true);
    }

    /// The number of an enum's variant, of so many.
    #[inline(never)]
    pub fn tag(&mut self, count: u8) -> u8 {
        let tag = self.bytes(1).first().copied().unwrap_or(count);
        if tag >= count {
            self.broken();
        }
        tag
    }

    #[inline(never)]
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        if let Some((these, rest)) = self.rest.split_at_checked(count) {
            self.rest = rest;
            return these;
        }
        self.broken();
        &[]
    }

    /// A number in seven bits a byte.
    #[inline(never)]
    pub fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1).first().copied().unwrap_or_default();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
        }
        self.broken();
        0
    }

    /// A count of things that have a byte each at least.
    fn count(&mut self) -> usize {
        let count = usize::try_from(self.number()).unwrap_or(usize::MAX);
        if count > self.rest.len() {
            self.broken();
            return 0;
        }
        count
    }

    #[inline(never)]
    fn text(&mut self) -> &'a str {
        let count = self.count();
        let bytes = self.bytes(count);
        std::str::from_utf8(bytes).unwrap_or_else(|_| {
            self.broken();
            ""
        })
    }
}

impl Reader<'_> {
    /// A text that may be left out.
    fn words(&mut self) -> Cow<'_, str> {
        let is_wordless = self.is_wordless;
        let text = self.text();
        let has_words = text.contains(char::is_whitespace) && text.contains(char::is_alphabetic);
        if !is_wordless || !has_words {
            return Cow::Borrowed(text);
        }
        let hide = |c: char| if c.is_whitespace() { c.to_string() } else { "x".repeat(c.len_utf8()) };
        Cow::Owned(text.chars().map(hide).collect())
    }
}

/// Adds a number in seven bits a byte.
#[inline(never)]
pub fn number(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    to.push(number.to_le_bytes()[0]);
}

#[inline(never)]
fn text(text: &str, to: &mut Vec<u8>) {
    number(text.len() as u64, to);
    to.extend_from_slice(text.as_bytes());
}

/// The shape of something around something.
const fn around(sign: u64, within: u64) -> u64 {
    (within ^ sign).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

macro_rules! unsigned {
    ($($kind:ty),*) => {$(
        impl Recorded for $kind {
            const SHAPE: u64 = around(1, size_of::<$kind>() as u64);

            fn write(&self, to: &mut Vec<u8>) {
                number(u64::try_from(*self).unwrap_or(u64::MAX), to);
            }

            extern "C" fn read(from: &mut Reader) -> Self {
                Self::try_from(from.number()).unwrap_or_else(|_| {
                    from.broken();
                    0
                })
            }
        }
    )*};
}
unsigned!(u16, u32, u64, usize);

macro_rules! signed {
    ($($kind:ty),*) => {$(
        impl Recorded for $kind {
            const SHAPE: u64 = around(2, size_of::<$kind>() as u64);

            fn write(&self, to: &mut Vec<u8>) {
                let wide = i64::from(*self);
                number(((wide << 1) ^ (wide >> 63)).cast_unsigned(), to);
            }

            extern "C" fn read(from: &mut Reader) -> Self {
                let folded = from.number();
                let wide = (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed();
                Self::try_from(wide).unwrap_or_else(|_| {
                    from.broken();
                    0
                })
            }
        }
    )*};
}
signed!(i32, i64);

/// Of a type, by the two functions that write and read it.
macro_rules! by {
    ($($kind:ty = $sign:literal, |$self:ident, $to:ident| $write:expr, |$from:ident| $read:expr;)*) => {$(
        impl Recorded for $kind {
            const SHAPE: u64 = around($sign, 0);

            fn write(&self, $to: &mut Vec<u8>) {
                let $self = self;
                $write;
            }

            extern "C" fn read($from: &mut Reader) -> Self {
                $read
            }
        }
    )*};
}

by! {
    bool = 4, |one, to| to.push(u8::from(*one)), |from| from.tag(2) == 1;
    f64 = 5, |one, to| to.extend_from_slice(&one.to_bits().to_le_bytes()), |from| {
        f64::from_bits(from.bytes(8).try_into().map(u64::from_le_bytes).unwrap_or_default())
    };
    String = 6, |one, to| text(one, to), |from| from.words().into_owned();
    Arc<str> = 6, |one, to| text(one, to), |from| from.words().into();
    Box<str> = 6, |one, to| text(one, to), |from| from.words().into();
    &'static str = 6, |one, to| text(one, to), |from| word(from);
    // A path that is no text comes back with its bytes replaced: none of the core's is written by others.
    PathBuf = 6, |one, to| text(&one.to_string_lossy(), to), |from| from.text().into();
    Time = 7, |one, to| number(one.0, to), |from| Time(from.number());
    Duration = 8, |one, to| { number(one.as_secs(), to); number(one.subsec_nanos().into(), to) }, |from| {
        let seconds = from.number();
        Duration::new(seconds, u32::try_from(from.number()).unwrap_or_default().min(999_999_999))
    };
    u8 = 9, |one, to| to.push(*one), |from| from.bytes(1).first().copied().unwrap_or_default();
    Map<String, Value> = 10, |one, to| object(one, to), |from| read_object(from);
    Value = 10, |one, to| value(one, to), |from| read_value(from);
}

impl Recorded for () {
    const SHAPE: u64 = 3;

    fn write(&self, _to: &mut Vec<u8>) {}

    extern "C" fn read(_from: &mut Reader) -> Self {}
}

/// A text of the program's own. Of what a file says only so much is kept for ever.
fn word(from: &mut Reader) -> &'static str {
    static WORDS: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());
    let text = from.text();
    let mut words = WORDS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(text) {
        return known;
    }
    if words.len() >= MAX_WORDS || text.len() > MAX_WORD_BYTES {
        from.broken();
        return "";
    }
    let kept: &'static str = Box::leak(text.into());
    words.insert(kept);
    kept
}

fn object(object: &Map<String, Value>, to: &mut Vec<u8>) {
    number(object.len() as u64, to);
    for (name, one) in object {
        text(name, to);
        value(one, to);
    }
}

fn read_object(from: &mut Reader) -> Map<String, Value> {
    let count = from.count();
    (0..count).map(|_| (from.text().to_owned(), read_value(from))).gather()
}

fn value(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Null => to.push(0),
        Value::Bool(is) => to.push(1 + u8::from(*is)),
        Value::Number(number) => numeral(number, to),
        Value::String(string) => {
            to.push(6);
            text(string, to);
        }
        Value::Array(all) => {
            to.push(7);
            all.write(to);
        }
        Value::Object(all) => {
            to.push(8);
            object(all, to);
        }
    }
}

fn numeral(numeral: &Number, to: &mut Vec<u8>) {
    if let Some(whole) = numeral.as_u64() {
        to.push(3);
        number(whole, to);
    } else if let Some(below) = numeral.as_i64() {
        to.push(4);
        below.write(to);
    } else {
        to.push(5);
        numeral.as_f64().unwrap_or_default().write(to);
    }
}

fn read_value(from: &mut Reader) -> Value {
    let tag = from.tag(9);
    if from.depth >= MAX_DEPTH {
        from.broken();
    }
    if from.is_broken {
        return Value::Null;
    }
    from.depth += 1;
    let value = match tag {
        0 => Value::Null,
        1 | 2 => Value::Bool(tag == 2),
        3 => from.number().into(),
        4 => i64::read(from).into(),
        5 => f64::read(from).into(),
        6 => Value::String(from.words().into_owned()),
        7 => Value::Array(Recorded::read(from)),
        _ => Value::Object(read_object(from)),
    };
    from.depth -= 1;
    value
}

macro_rules! sequence {
    ($($kind:ty $(where $Order:ident)?, $add:ident;)*) => {$(
        impl<T: Recorded $(+ $Order)?> Recorded for $kind {
            const SHAPE: u64 = around(20, T::SHAPE);

            fn write(&self, to: &mut Vec<u8>) {
                number(self.len() as u64, to);
                for one in self.iter() {
                    one.write(to);
                }
            }

            extern "C" fn read(from: &mut Reader) -> Self {
                let (count, mut all) = (from.count(), Self::new());
                for _ in 0..count {
                    if from.is_broken {
                        break;
                    }
                    all.$add(T::read(from));
                }
                all
            }
        }
    )*};
}
sequence!(Vec<T>, push; VecDeque<T>, push_back; BTreeSet<T> where Ord, insert;);

impl<T: Recorded> Recorded for Arc<[T]> {
    const SHAPE: u64 = Vec::<T>::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        number(self.len() as u64, to);
        for one in self.iter() {
            one.write(to);
        }
    }

    extern "C" fn read(from: &mut Reader) -> Self {
        Vec::read(from).into()
    }
}

impl<T: Recorded> Recorded for Option<T> {
    const SHAPE: u64 = around(21, T::SHAPE);

    fn write(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.is_some()));
        if let Some(one) = self {
            one.write(to);
        }
    }

    extern "C" fn read(from: &mut Reader) -> Self {
        (from.tag(2) == 1).then(|| T::read(from))
    }
}

impl<T: Recorded, E: Recorded> Recorded for Result<T, E> {
    const SHAPE: u64 = around(T::SHAPE, around(22, E::SHAPE));

    fn write(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.is_err()));
        match self {
            Ok(one) => one.write(to),
            Err(one) => one.write(to),
        }
    }

    extern "C" fn read(from: &mut Reader) -> Self {
        if from.tag(2) == 0 { Ok(T::read(from)) } else { Err(E::read(from)) }
    }
}

impl<K: Recorded + Ord, V: Recorded> Recorded for BTreeMap<K, V> {
    const SHAPE: u64 = around(K::SHAPE, around(23, V::SHAPE));

    fn write(&self, to: &mut Vec<u8>) {
        number(self.len() as u64, to);
        for (key, one) in self {
            key.write(to);
            one.write(to);
        }
    }

    extern "C" fn read(from: &mut Reader) -> Self {
        // One by one: to sort them all, as collecting does, takes ten times the code, for each type of map.
        let (count, mut all) = (from.count(), Self::new());
        for _ in 0..count {
            if from.is_broken {
                break;
            }
            let key = K::read(from);
            all.insert(key, V::read(from));
        }
        all
    }
}

macro_rules! pointer {
    ($($Pointer:ident)*) => {$(
        impl<T: Recorded> Recorded for $Pointer<T> {
            const SHAPE: u64 = T::SHAPE;

            fn write(&self, to: &mut Vec<u8>) {
                T::write(self, to);
            }

            extern "C" fn read(from: &mut Reader) -> Self {
                Self::new(T::read(from))
            }
        }
    )*};
}
pointer!(Arc Box);

macro_rules! tuple {
    ($($Name:ident $at:tt),*) => {
        impl<$($Name: Recorded),*> Recorded for ($($Name,)*) {
            const SHAPE: u64 = 24 $(+ around($at + 25, $Name::SHAPE) / 8)*;

            fn write(&self, to: &mut Vec<u8>) {
                $(self.$at.write(to);)*
            }

            extern "C" fn read(from: &mut Reader) -> Self {
                ($($Name::read(from),)*)
            }
        }
    };
}
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);

impl<const N: usize> Recorded for [u8; N] {
    const SHAPE: u64 = around(30, N as u64);

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    extern "C" fn read(from: &mut Reader) -> Self {
        from.bytes(N).try_into().unwrap_or([0; N])
    }
}

/// Adds the first line of a text that is not blank, of which rules look at nothing else.
pub fn first_line(whole: &str, to: &mut Vec<u8>) {
    let line = whole.trim().lines().next().unwrap_or_default();
    let mut end = line.len().min(MAX_LINE_BYTES);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    text(&line[..end], to);
}

/// What must not stand in a recording: as long as it was, of one letter.
pub trait Hidden {
    /// Adds something of the same length, so that it can be read as the type that it is.
    fn write_hidden(&self, to: &mut Vec<u8>);
}

impl Hidden for String {
    fn write_hidden(&self, to: &mut Vec<u8>) {
        text(&"*".repeat(self.len()), to);
    }
}

/// A list is what a tool server offers, which rules look at; anything else is what it has answered, and may
/// be a secret.
impl Hidden for Value {
    fn write_hidden(&self, to: &mut Vec<u8>) {
        if self.is_array() { self.write(to) } else { Self::Null.write(to) }
    }
}

impl<T: Hidden, E: Recorded> Hidden for Result<T, E> {
    fn write_hidden(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.is_err()));
        match self {
            Ok(one) => one.write_hidden(to),
            Err(one) => one.write(to),
        }
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
