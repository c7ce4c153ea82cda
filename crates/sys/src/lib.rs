//! What `svc` needs of the system: processes, sockets, files, threads, clocks and signals. It knows nothing
//! of agents but their ids.

pub mod beneath;
pub mod clock;
pub mod clock_set;
pub mod confine;
pub mod control_group;
pub mod descriptors;
pub mod files;
pub mod hand_over;
pub mod http;
pub mod journal;
pub mod logger;
pub mod memory;
pub mod port_holder;
pub mod pressure;
pub mod process;
pub mod registry;
pub mod regular;
pub mod rehearsal_signals;
pub mod reserve;
pub mod secrets;
pub mod signals;
pub mod socket_table;
pub mod sockets;
pub mod terminal;
pub mod threads;
pub mod tls;
pub mod ws;
