//! Erasure codes for chunks of memory: k chunks of data get m chunks of parity, and lost data is computed from what is left.
//!
//! - **XOR(k, m)**: parity row i is the sum, by exclusive or, of the data chunks j with j mod m = i. Each such group survives the loss of one.
//! - **MDS(k, m)**: a Reed-Solomon code over GF(2^8) (polynomial 0x11d) with a Cauchy matrix. Any e parity rows give back any e lost chunks,
//!   and there are 256 - k rows, more than m where a sender has to add some.
//!
//! ```
//! use softnic_codes::{ChunkSet, Code};
//!
//! let code = Code::mds(4, 2).unwrap();
//! // Four chunks of 8 bytes, the last one short: what is missing counts as zeros.
//! let data = *b"a message of less than 4*8 bytes";
//! let (mut received, data) = (data, &data[..30]);
//! let mut parity = [[0; 8]; 2];
//! code.encode(data, 8, &mut parity);
//!
//! // Chunks 1 and 3 are lost.
//! received[8..16].fill(0xaa);
//! received[24..].fill(0xaa);
//! let present: ChunkSet = [0, 2].into_iter().collect();
//! assert!(code.can_recover(4, &present, &ChunkSet::below(2)));
//! code.decode(&mut received[..30], 8, &present, &[(0, &parity[0]), (1, &parity[1])]).unwrap();
//! assert_eq!(&received[..30], data);
//! ```
//!
//! Nothing allocates. Data lies in one piece; parities may be buffers apart or lie one behind the other. The instructions for it are chosen
//! when a code is made ([`Kernel`]).

mod chunks;
mod code;
mod error;
mod field;
#[doc(hidden)]
pub mod fuzz;
mod kernel;
mod mds;
mod set;
mod xor;

pub use code::{Code, Family};
pub use error::{CodeError, DecodeError};
pub use kernel::{Kernel, xor, xor_all};
pub use set::ChunkSet;
