//! What is known of the machine that agents run on.

/// What one look has found. Shares of time are hundredths of a percent of the last ten seconds; `None` where
/// the kernel tells none.
#[derive(Debug, Clone, Default, PartialEq, Eq, crate::recorded::Recorded)]
pub struct Machine {
    /// Bytes of memory there are for this process and what it starts; 0 when nobody tells.
    pub memory_total: u64,
    /// Bytes of them that can still be had without anything else being put away.
    pub memory_free: u64,
    /// Whether a control group allows less than the machine has.
    pub is_confined: bool,
    /// Some task waited for memory.
    pub memory_some: Option<u32>,
    /// All tasks waited for memory.
    pub memory_full: Option<u32>,
    /// Some task waited for a processor.
    pub cpu_some: Option<u32>,
    /// All tasks waited for a disk.
    pub io_full: Option<u32>,
    /// Tasks that ran or wanted to in the last minute, in hundredths.
    pub load: u32,
    /// Processors.
    pub cpus: u32,
}
