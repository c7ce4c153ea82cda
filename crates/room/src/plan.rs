//! What a room shows of the machine.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a room shows. It begins as the whole machine, to be read, with devices that hold nothing; the steps
/// change that, one above the other. All paths are absolute and without links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is changed, in this order.
    pub steps: Vec<Step>,
    /// Where the program starts.
    pub cwd: PathBuf,
    /// What Landlock, as a second line, lets be written; `None` goes without it.
    pub fence: Option<Vec<PathBuf>>,
}

/// One change to what a room shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// A file or folder as it is on the machine, whatever covers it by now. One that can be written and is
    /// not there is left out; without one that is to be read there is no room.
    Share {
        /// Which.
        path: PathBuf,
        /// Whether it can be written there.
        writable: bool,
    },
    /// A folder that shows another one, which can be written.
    Private {
        /// Which.
        path: PathBuf,
        /// The other one.
        content: PathBuf,
    },
    /// A folder of the machine with a layer above it: what is written goes to the layer, what lies below
    /// stays as it is. Where the kernel cannot do that, the place can only be read, and standard error says
    /// so, if it shows itself; else it shows the upper folder alone.
    Layer {
        /// Which place shows it.
        path: PathBuf,
        /// The folder below: the place itself, or another one.
        below: PathBuf,
        /// Where what is written goes. Existing, empty the first time.
        upper: PathBuf,
        /// A folder beside it for the kernel's own use. Existing, on the same file system.
        work: PathBuf,
    },
    /// A file or folder that is empty and cannot be written. One that is not there is left out.
    Hide {
        /// Which.
        path: PathBuf,
    },
}
