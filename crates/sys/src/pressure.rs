//! How much of this machine is in use: memory, processor and disk.
//!
//! By the kernel's own word on pressure (`/proc/pressure`) where it has one, else by `/proc/meminfo` and the
//! load. Where a control group above this process allows less memory than the machine has, that counts.

use std::path::{Path, PathBuf};
use svc_base::machine::Machine;

const KIB: u64 = 1024;
/// Where control groups are.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Bytes of a small file of the kernel's that are read; they are shorter.
const SMALL_FILE_BYTES: u64 = 64 * 1024;

/// Looks once: a few small files, no waiting.
pub fn look() -> Machine {
    let cpus =
        std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    let mut machine = Machine { cpus, ..Machine::default() };
    (machine.memory_total, machine.memory_free) = meminfo(&small("/proc/meminfo"));
    if let Some((total, free)) = confined(Path::new(CGROUP_ROOT), &small("/proc/self/cgroup"))
        && total < machine.memory_total
    {
        machine.is_confined = true;
        machine.memory_total = total;
        machine.memory_free = machine.memory_free.min(free);
    }
    let memory = small("/proc/pressure/memory");
    machine.memory_some = pressure(&memory, "some");
    machine.memory_full = pressure(&memory, "full");
    machine.cpu_some = pressure(&small("/proc/pressure/cpu"), "some");
    machine.io_full = pressure(&small("/proc/pressure/io"), "full");
    let load = small("/proc/loadavg");
    machine.load = load.split_ascii_whitespace().next().and_then(hundredths).unwrap_or(0);
    machine
}

/// A small file of the kernel's; empty where there is none.
pub(crate) fn small(path: impl AsRef<Path>) -> String {
    use std::io::Read;
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(path) {
        // Cut off or not text: then it tells nothing.
        let _ = file.take(SMALL_FILE_BYTES).read_to_string(&mut text);
    }
    text
}

/// Bytes of memory, and of them what can be had.
fn meminfo(text: &str) -> (u64, u64) {
    let field = |name: &str| kilobytes(text, name);
    let total = field("MemTotal:").unwrap_or(0);
    // Kernels before 3.14 do not tell what can be had.
    let rough = || field("MemFree:").unwrap_or(0) + field("Cached:").unwrap_or(0);
    (total * KIB, field("MemAvailable:").unwrap_or_else(rough) * KIB)
}

/// The number in `kB` behind a name at the beginning of a line.
pub(crate) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The share of the last ten seconds in a file of `/proc/pressure`.
fn pressure(text: &str, who: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix(who))?;
    hundredths(line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?)
}

/// `12.34` as 1234.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part = part.get(..2).or(part.get(..1)).unwrap_or("0");
    let scale = if part.len() == 1 { 10 } else { 1 };
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(part.parse::<u32>().ok()? * scale)
}

/// The tightest limit of memory of a control group above this process, and how much of it is left: bytes.
fn confined(root: &Path, own: &str) -> Option<(u64, u64)> {
    let v2 = own.lines().find_map(|line| line.strip_prefix("0::"));
    let v1 = own.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path));
    let newer = v2.and_then(|path| tightest(root, path, ["memory.max", "memory.current", "inactive_file"]));
    let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
    newer.or_else(|| v1.and_then(|path| tightest(&root.join("memory"), path, names)))
}

fn tightest(root: &Path, path: &str, [limit, usage, cache]: [&str; 3]) -> Option<(u64, u64)> {
    let mut found: Option<(u64, u64)> = None;
    // A path that the mount does not show, as in a container, is looked for at the mount's root.
    for folder in Path::new(path.trim_start_matches('/')).ancestors() {
        let folder: PathBuf = root.join(folder);
        let number = |name: &str| small(folder.join(name)).trim().parse::<u64>().ok();
        let (Some(most), Some(used)) = (number(limit), number(usage)) else { continue };
        let stat = small(folder.join("memory.stat"));
        // What was only read of files goes as soon as something else needs the room.
        let spare =
            stat.lines().find_map(|line| line.strip_prefix(cache)?.strip_prefix(' ')?.parse::<u64>().ok());
        let free = most.saturating_sub(used.saturating_sub(spare.unwrap_or(0)));
        if found.is_none_or(|(_, least)| free < least) {
            found = Some((most, free));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_kernel_are_read_as_it_writes_them() {
        let memory = "some avg10=12.34 avg60=5.00 avg300=1.00 total=99\nfull avg10=0.07 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!((pressure(memory, "some"), pressure(memory, "full")), (Some(1_234), Some(7)));
        assert_eq!((pressure("", "some"), pressure("some avg10=x", "some")), (None, None));
        assert_eq!(
            (hundredths("3"), hundredths("3.5"), hundredths("0.126")),
            (Some(300), Some(350), Some(12))
        );
        let info = "MemTotal:        1000 kB\nMemFree:          100 kB\nCached:           50 kB\n";
        assert_eq!(meminfo(info), (1_000 * KIB, 150 * KIB));
        let info = format!("{info}MemAvailable:     400 kB\n");
        assert_eq!(meminfo(&info), (1_000 * KIB, 400 * KIB));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_tells_its_memory_and_processors() {
        let machine = look();
        assert!(machine.cpus >= 1 && machine.memory_total > 16 << 20, "{machine:?}");
        assert!(machine.memory_free <= machine.memory_total, "{machine:?}");
    }

    #[test]
    fn the_tightest_control_group_above_counts_and_what_it_only_caches_is_free() {
        let root = std::env::temp_dir().join(format!("svc-pressure-{}", std::process::id()));
        let write = |folder: &str, files: &[(&str, &str)]| {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            for (name, text) in files {
                std::fs::write(root.join(folder).join(name), text).unwrap();
            }
        };
        write("a/b", &[("memory.max", "max\n"), ("memory.current", "10\n")]);
        write(
            "a",
            &[("memory.max", "1000\n"), ("memory.current", "700\n"), ("memory.stat", "inactive_file 100\n")],
        );
        assert_eq!(confined(&root, "0::/a/b\n"), Some((1_000, 400)));
        assert_eq!(confined(&root, "0::/elsewhere\n"), None);
        write("memory/x", &[("memory.limit_in_bytes", "500"), ("memory.usage_in_bytes", "900")]);
        assert_eq!(confined(&root, "4:memory:/x\n"), Some((500, 0)), "more in use than allowed");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
