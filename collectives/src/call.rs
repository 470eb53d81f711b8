//! What a collective does: its operation and algorithm, the type of its elements, how they are reduced, and which part of the buffer
//! belongs to which rank.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// What becomes of the buffers of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Every rank gets the reduction of all buffers.
    AllReduce,
    /// Rank r gets block r of the reduction of all buffers; the rest of its buffer is used up.
    ReduceScatter,
    /// Block r of rank r goes to every rank.
    AllGather,
    /// Block j of rank r becomes block r of rank j. Blocks are of equal size; what is left behind them stays.
    AllToAll,
    /// The buffer of one rank goes to every rank.
    Broadcast {
        /// That rank.
        root: usize,
    },
    /// Nobody goes on before everybody has come. The handshake of every collective is one, so a barrier has no steps.
    Barrier,
}

/// Who sends to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Each rank sends to the next one.
    Ring,
    /// Two binary trees, each for half of the bytes; a rank that passes bytes on in one is a leaf of the other.
    Tree,
    /// Ranks as the corners of a grid with a dimension for each prime factor of their number; one dimension after the other.
    Bcube,
}

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 32 bits, two's complement; a sum wraps.
    I32,
}

/// How elements of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The least of them.
    Min,
    /// The greatest of them.
    Max,
}

/// One collective, as every rank of the group calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// What it does.
    pub operation: Operation,
    /// How.
    pub algorithm: Algorithm,
    /// Elements of this type.
    pub element: Element,
    /// What becomes of them.
    pub reduction: Reduction,
    /// Bytes of each rank's buffer.
    pub bytes: u64,
}

/// A call that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The algorithm has no such operation.
    #[error("{0} has no {1}: ring and bcube have every operation")]
    NoSuchAlgorithm(Algorithm, Operation),
    /// The buffer ends within an element.
    #[error("{bytes} bytes are no whole number of elements of {element}")]
    PartOfElement {
        /// Bytes of the buffer.
        bytes: u64,
        /// Its elements.
        element: Element,
    },
    /// A broadcast from a rank that is not there.
    #[error("there is no rank {root} to broadcast: the group has {ranks}")]
    NoSuchRoot {
        /// The rank that was asked for.
        root: usize,
        /// Ranks of the group.
        ranks: usize,
    },
}

impl Element {
    /// Bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::F16 | Element::Bf16 => 2,
        }
    }
}

impl Operation {
    /// Bytes that a rank of the slowest sends at least, as a multiple of the buffer: what bus bandwidth is counted by, as in nccl-tests.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self {
            _ if ranks < 2 => 0.0,
            Operation::AllReduce => 2.0 * (n - 1.0) / n,
            Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll => (n - 1.0) / n,
            Operation::Broadcast { .. } => 1.0,
            Operation::Barrier => 0.0,
        }
    }
}

impl Call {
    /// Whether a group of so many ranks can make it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, ranks: usize) -> Result<(), CallError> {
        let fits = match (self.algorithm, self.operation) {
            (Algorithm::Ring | Algorithm::Bcube, _) => true,
            (Algorithm::Tree, op) => {
                matches!(op, Operation::AllReduce | Operation::Broadcast { .. } | Operation::Barrier)
            }
        };
        if !fits {
            return Err(CallError::NoSuchAlgorithm(self.algorithm, self.operation));
        }
        if !self.bytes.is_multiple_of(self.element.size()) {
            return Err(CallError::PartOfElement { bytes: self.bytes, element: self.element });
        }
        match self.operation {
            Operation::Broadcast { root } if root >= ranks => Err(CallError::NoSuchRoot { root, ranks }),
            _ => Ok(()),
        }
    }

    /// The bytes of some blocks, of so many that the buffer has. Sizes that do not divide are spread: no two blocks differ by more than
    /// an element.
    pub fn blocks(&self, of: usize, blocks: Range<usize>) -> Range<u64> {
        let size = self.element.size();
        let elements = u128::from(self.bytes / size);
        let begin = |block: usize| (elements * block as u128 / of.max(1) as u128) as u64 * size;
        begin(blocks.start)..begin(blocks.end)
    }

    /// The bytes of a block of an AllToAll: all are equal.
    pub fn equal_block(&self, of: usize, block: usize) -> Range<u64> {
        let size = self.element.size();
        let len = self.bytes / size / of.max(1) as u64 * size;
        block as u64 * len..(block as u64 + 1) * len
    }

    /// Of the buffer of a rank, the bytes that the collective is about when it is over; the others are used up.
    pub fn result(&self, ranks: usize, rank: usize) -> Range<u64> {
        match self.operation {
            Operation::ReduceScatter => self.blocks(ranks, rank..rank + 1),
            _ => 0..self.bytes,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::AllReduce => "allreduce",
            Operation::ReduceScatter => "reducescatter",
            Operation::AllGather => "allgather",
            Operation::AllToAll => "alltoall",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Barrier => "barrier",
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Bcube => "bcube",
        })
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
            Element::I32 => "i32",
        })
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reduction::Sum => "sum",
            Reduction::Min => "min",
            Reduction::Max => "max",
        })
    }
}

/// As in an error line: `allreduce of 1024 bytes of f32 (sum) by ring`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { operation, algorithm, element, reduction, bytes } = self;
        write!(f, "{operation} of {bytes} bytes of {element} ({reduction}) by {algorithm}")?;
        match operation {
            Operation::Broadcast { root } => write!(f, " from rank {root}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(s: &str) -> Result<Operation, String> {
        let all = [
            Operation::AllReduce,
            Operation::ReduceScatter,
            Operation::AllGather,
            Operation::AllToAll,
            Operation::Broadcast { root: 0 },
            Operation::Barrier,
        ];
        named(s, "collective", &all)
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(s: &str) -> Result<Algorithm, String> {
        named(s, "algorithm", &[Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube])
    }
}

impl FromStr for Element {
    type Err = String;

    fn from_str(s: &str) -> Result<Element, String> {
        named(s, "type", &[Element::F32, Element::F16, Element::Bf16, Element::I32])
    }
}

impl FromStr for Reduction {
    type Err = String;

    fn from_str(s: &str) -> Result<Reduction, String> {
        named(s, "reduction", &[Reduction::Sum, Reduction::Min, Reduction::Max])
    }
}

fn named<T: Copy + fmt::Display>(s: &str, what: &str, all: &[T]) -> Result<T, String> {
    all.iter().copied().find(|one| one.to_string() == s).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        format!("there is no {what} '{s}': {}", names.join(", "))
    })
}
