//! Faults and shape of a link, seeded and free of IO: what happens to each frame, and when it arrives.
//!
//! [`Injector`] decides over a frame, [`Line`] adds rate, queue, delay and jitter and keeps what is under way in order,
//! [`EmulatedLink`] keeps the frames too. The simulator uses the second with frames of its own, a driver in real time the third.
#![forbid(unsafe_code)]

pub mod bottleneck;
pub mod calls;
pub mod frames;
pub mod fuzz;
mod injector;
mod line;
mod link;
mod process;
pub mod random;
mod red;
mod script;
pub mod slots;
mod spec;
pub mod text;
mod time;
pub mod units;

pub use injector::{Fate, Injector};
pub use line::{Line, LineStats};
pub use link::{EmulatedLink, Offered};
pub use process::{ProcessName, ProcessPattern};
pub use red::{Policy, QueueDecision, Red};
pub use script::{Direction, PacketName, PacketNames, Script};
pub use spec::{BurstLen, Fault, Outage, Shape, Spec, SpecError, with_whole_names};
pub use time::Time;
