//! What this program holds in memory without need.
#![allow(unsafe_code, reason = "madvise, mallopt and malloc_trim, which std does not offer")]

/// Pools that all threads share. Where each has its own, what a thread frees waits there for that thread, and
/// a daemon with a thread for every agent holds three times of what it uses.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const POOLS: libc::c_int = 2;

/// Has all threads that come take memory from a few pools. For the first lines of a program.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn share_pools() {
    // SAFETY: it takes two numbers, and sets one of the C library's own.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, POOLS);
    }
}

/// Other C libraries have no pools of threads' own.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn share_pools() {}

/// Gives whole pages that lie free between pieces in use back to the system; which the C library does of its
/// own accord only at the end of a pool. Whoever wants memory meanwhile waits: some 3 ms with 30 MB to give
/// back.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() {
    // SAFETY: it takes a number, and nothing that is in use is touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries do it by themselves, or cannot.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}

/// Lets go of the pages of this program's code and constants. What is used again is mapped again at its next
/// use, in steps of 64 KB, without reading the disk as long as the system has it in memory.
///
/// For the end of a start: much of a program is needed for nothing else. Where it cannot be done, everything
/// stays as it is.
#[cfg(target_os = "linux")]
pub fn let_go_of_code() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for (from, to) in unwritten(&maps) {
        // SAFETY: the mapping is private, nobody has written to it or may, and it shows a file: what is
        // dropped is read from there again.
        unsafe {
            libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED);
        }
    }
}

/// Elsewhere nothing is let go of.
#[cfg(not(target_os = "linux"))]
pub fn let_go_of_code() {}

/// First addresses and ends of the mappings in `/proc/PID/smaps` that show a file, may not be written to and
/// never were; the linker writes to some before it closes them.
#[cfg(target_os = "linux")]
fn unwritten(maps: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut candidate = None;
    maps.lines().filter_map(move |line| {
        if let Some(own) = line.strip_prefix("Anonymous:") {
            return candidate.take().filter(|_| own.trim() == "0 kB");
        }
        candidate = of_a_file(line).or(candidate);
        None
    })
}

/// The addresses in the first line about a mapping; `None` when it is writable, shared, or shows no file.
#[cfg(target_os = "linux")]
fn of_a_file(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (from, to) = (number(from)?, number(to)?);
    let is_closed = matches!(words.next()?, "r-xp" | "r--p");
    let shows_a_file = words.nth(2).is_some_and(|inode| inode != "0");
    (is_closed && shows_a_file).then_some((from, to))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn is_code(place: (usize, usize)) -> bool {
        (place.0..place.1).contains(&(is_code as fn((usize, usize)) -> bool as usize))
    }

    /// Kilobytes of this program's code that are in memory.
    fn resident_kb() -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !of_a_file(line).is_some_and(is_code));
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim_end_matches("kB").trim().parse().unwrap()
    }

    /// Looks at each page of the code.
    fn touch_all() {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (from, to) = unwritten(&maps).find(|place| is_code(*place)).unwrap();
        for page in (from..to).step_by(PAGE) {
            // SAFETY: it lies in a mapping of this program's that can be read and stays.
            unsafe { (page as *const u8).read_volatile() };
        }
    }

    #[test]
    fn code_that_is_let_go_of_is_there_again_when_it_is_needed() {
        touch_all();
        let before = resident_kb();
        let_go_of_code();
        let after = resident_kb();
        // Reading what is left needs code itself, and the kernel brings its neighbours along: how much
        // differs by the layout.
        assert!(after * 8 < before * 7, "{before} kB, then {after} kB");
        assert_eq!(format!("{:?}", [1.5, 2.5]), "[1.5, 2.5]");
    }

    /// Pools beside the first: each reserves 64 MB of addresses, most of them out of use.
    #[cfg(target_env = "gnu")]
    fn pools() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let reserved = maps.lines().filter(|line| line.contains(" ---p ")).filter(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (48 << 20..64 << 20).contains(&(number(to) - number(from)))
        });
        reserved.count()
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn threads_share_their_pools() {
        share_pools();
        let before = pools();
        let all = std::sync::Barrier::new(17);
        let after = std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let held = std::hint::black_box(vec![1_u8; 10_000]);
                    all.wait();
                    all.wait();
                    drop(held);
                });
            }
            all.wait();
            let after = pools();
            all.wait();
            after
        });
        assert!(after <= before + 1, "{before} pools, then {after}");
    }

    /// Bytes of this program's own that are in memory.
    #[cfg(target_env = "gnu")]
    fn own_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        own.trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn pages_that_lie_free_between_pieces_in_use_are_given_back() {
        const PIECE: usize = 1 << 10;
        const PIECES: usize = 30_000;
        let before = own_bytes();
        let mut pieces: Vec<Option<Vec<u8>>> = (0..PIECES).map(|_| Some(vec![7; PIECE])).collect();
        // One in a hundred stays, the last one among them: no pool has a free end.
        for (n, piece) in pieces.iter_mut().enumerate() {
            piece.take_if(|_| n % 100 != 0 && n + 1 != PIECES);
        }
        let held = own_bytes() - before;
        give_back();
        let left = own_bytes() - before;
        assert!(held > PIECE * PIECES / 2 && left < held / 3, "{held} bytes held, then {left}");
        assert!(pieces.iter().flatten().all(|piece| piece.iter().all(|byte| *byte == 7)));
    }

    #[test]
    fn only_what_shows_a_file_and_was_never_written_is_let_go_of() {
        let found = |rights: &str, inode: &str, own: &str| {
            let maps = format!(
                "1000-3000 {rights} 00000000 fe:00 {inode} /svc\nRss: 8 kB\nAnonymous:   {own} kB\nVmFlags: rd\n\
                 7000-8000 rw-p 00000000 fe:00 7 /svc\nAnonymous:   0 kB\n"
            );
            unwritten(&maps).collect::<Vec<_>>()
        };
        assert_eq!(found("r-xp", "7", "0"), [(0x1000, 0x3000)]);
        assert_eq!(found("r--p", "7", "0"), [(0x1000, 0x3000)]);
        for (rights, inode, own) in [
            ("rw-p", "7", "0"),
            ("rwxp", "7", "0"),
            ("r-xs", "7", "0"),
            ("r-xp", "0", "0"),
            ("r--p", "7", "4"),
        ] {
            assert_eq!(found(rights, inode, own), [], "{rights} {inode} {own}");
        }
    }
}
