//! Maps: what programs and the process that loaded them share.

use std::ffi::c_long;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{bpf, bpf_fd, fd_by_id, read_info};

const CREATE: c_long = 0;
const LOOKUP: c_long = 1;
const UPDATE: c_long = 2;
const DELETE: c_long = 3;
const NEXT_KEY: c_long = 4;
const FD_BY_ID: c_long = 14;

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const XSKMAP: u32 = 17;
/// The values of an array begin with a page, so values of whole cache lines lie in their own.
const F_MMAPABLE: u32 = 1 << 10;

/// Only a key that is not there is inserted.
const NO_EXIST: u64 = 1;

#[repr(C)]
#[derive(Default)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// What reads and writes an element; [`NEXT_KEY`] has the next key where the others have the value.
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Info {
    map_type: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    name: [u8; 16],
}

/// A type that the kernel copies in and out of a map.
///
/// # Safety
/// Every byte of a value is initialised, and any bytes are a value: no padding, no reference, nothing that some bits are invalid for.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: numbers.
unsafe impl Plain for u32 {}
// SAFETY: bytes.
unsafe impl<const N: usize> Plain for [u8; N] {}

/// Why a map cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// bpf(2) refused.
    #[error("bpf(2): {0}")]
    Bpf(#[from] io::Error),
    /// The program has no map of that name.
    #[error("the program has no map {0}")]
    Missing(&'static str),
    /// Another version of softnic made it.
    #[error("map {0} is of another version")]
    Different(&'static str),
}

/// A map of any kind with keys and values of these types.
#[derive(Debug)]
struct Map<K, V> {
    fd: OwnedFd,
    types: PhantomData<fn(K) -> V>,
}

impl<K: Plain, V: Plain> Map<K, V> {
    fn create(map_type: u32, map_flags: u32, name: &str, max_entries: u32) -> io::Result<Map<K, V>> {
        let mut attributes = Create { max_entries, name: [0; 16], ..Map::<K, V>::shape(map_type, map_flags) };
        attributes.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the fields are those of BPF_MAP_CREATE and none is an address.
        unsafe { bpf_fd(CREATE, &mut attributes) }.map(|fd| Map { fd, types: PhantomData })
    }

    fn shape(map_type: u32, map_flags: u32) -> Create {
        let (key_size, value_size) = (size_of::<K>() as u32, size_of::<V>() as u32);
        Create { map_type, key_size, value_size, map_flags, ..Create::default() }
    }

    /// The one of `maps` that has this name.
    fn among(
        maps: &[OwnedFd],
        map_type: u32,
        map_flags: u32,
        name: &'static str,
        entries: u32,
    ) -> Result<Map<K, V>, MapError> {
        for fd in maps {
            let mut info = Info::default();
            // SAFETY: `Info` begins as `struct bpf_map_info` does and has no addresses; `fd` is a map's.
            unsafe { read_info(fd, &mut info)? };
            if info.name.split(|&b| b == 0).next() == Some(name.as_bytes()) {
                let shape = Map::<K, V>::shape(map_type, map_flags);
                let fits = info.map_type == shape.map_type
                    && info.map_flags == shape.map_flags
                    && info.key_size == shape.key_size
                    && info.value_size == shape.value_size
                    && info.max_entries == entries;
                return match fits {
                    true => Ok(Map { fd: fd.try_clone()?, types: PhantomData }),
                    false => Err(MapError::Different(name)),
                };
            }
        }
        Err(MapError::Missing(name))
    }

    /// Calls bpf(2) about an element.
    ///
    /// # Safety
    /// `value` is valid for what the command does with it.
    unsafe fn element(&self, command: c_long, key: Option<&K>, value: u64, flags: u64) -> io::Result<()> {
        let mut attributes = Element {
            map_fd: self.fd.as_raw_fd() as u32,
            padding: 0,
            key: key.map_or(0, |key| std::ptr::from_ref(key) as u64),
            value,
            flags,
        };
        // SAFETY: the fields are those of the command; the map was made for keys of this type, and the caller answers for the value.
        unsafe { bpf(command, &mut attributes) }.map(|_| ())
    }

    fn get(&self, key: &K) -> io::Result<V> {
        let mut value = MaybeUninit::<V>::uninit();
        // SAFETY: the kernel fills the value, whose size is the map's; any bytes are a `V`.
        unsafe { self.element(LOOKUP, Some(key), value.as_mut_ptr() as u64, 0).map(|()| value.assume_init()) }
    }

    fn update(&self, key: &K, value: &V, flags: u64) -> io::Result<()> {
        // SAFETY: the kernel reads the value, whose size is the map's.
        unsafe { self.element(UPDATE, Some(key), std::ptr::from_ref(value) as u64, flags) }
    }

    fn delete(&self, key: &K) -> io::Result<()> {
        // SAFETY: this command has no value.
        unsafe { self.element(DELETE, Some(key), 0, 0) }
    }

    /// The key behind this one, or the first.
    fn next_key(&self, key: Option<&K>) -> io::Result<Option<K>> {
        let mut next = MaybeUninit::<K>::uninit();
        // SAFETY: the kernel fills the next key, whose size is the map's; any bytes are a `K`.
        none_if_missing(unsafe {
            self.element(NEXT_KEY, key, next.as_mut_ptr() as u64, 0).map(|()| next.assume_init())
        })
    }
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A number of elements that are always there, zeros at first.
#[derive(Debug)]
pub(crate) struct ArrayMap<V>(Map<u32, V>);

impl<V: Plain> ArrayMap<V> {
    /// An array of so many elements.
    pub(crate) fn new(name: &'static str, entries: u32) -> io::Result<ArrayMap<V>> {
        Map::create(ARRAY, F_MMAPABLE, name, entries).map(ArrayMap)
    }

    /// The one of `maps` that [`ArrayMap::new`] made with these arguments.
    pub(crate) fn among(maps: &[OwnedFd], name: &'static str, entries: u32) -> Result<ArrayMap<V>, MapError> {
        Map::among(maps, ARRAY, F_MMAPABLE, name, entries).map(ArrayMap)
    }

    /// An element.
    pub(crate) fn get(&self, index: u32) -> io::Result<V> {
        self.0.get(&index)
    }

    /// Writes an element. A program that runs at this moment may see parts of both.
    pub(crate) fn set(&self, index: u32, value: &V) -> io::Result<()> {
        self.0.update(&index, value, 0)
    }
}

impl<V> AsFd for ArrayMap<V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// Values by key.
#[derive(Debug)]
pub(crate) struct HashMap<K, V>(Map<K, V>);

impl<K: Plain, V: Plain> HashMap<K, V> {
    /// A map of at most so many entries.
    pub(crate) fn new(name: &'static str, entries: u32) -> io::Result<HashMap<K, V>> {
        Map::create(HASH, 0, name, entries).map(HashMap)
    }

    /// The one of `maps` that [`HashMap::new`] made with these arguments.
    pub(crate) fn among(maps: &[OwnedFd], name: &'static str, entries: u32) -> Result<HashMap<K, V>, MapError> {
        Map::among(maps, HASH, 0, name, entries).map(HashMap)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> io::Result<Option<V>> {
        none_if_missing(self.0.get(key))
    }

    /// Inserts a key that is not there; `false` if it is.
    pub(crate) fn insert(&self, key: &K, value: &V) -> io::Result<bool> {
        match self.0.update(key, value, NO_EXIST) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes a key; `false` if it was not there.
    pub(crate) fn remove(&self, key: &K) -> io::Result<bool> {
        none_if_missing(self.0.delete(key)).map(|there| there.is_some())
    }

    /// Every key, in no order. Nobody else may remove keys meanwhile.
    pub(crate) fn keys(&self) -> io::Result<Vec<K>> {
        let mut keys = Vec::new();
        while let Some(key) = self.0.next_key(keys.last())? {
            keys.push(key);
        }
        Ok(keys)
    }
}

impl<K, V> AsFd for HashMap<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// The map from a device's queues to sockets.
#[derive(Debug)]
pub(crate) struct XskMap(Map<u32, u32>);

impl XskMap {
    /// A map for so many queues, without sockets.
    pub(crate) fn new(queues: u32) -> io::Result<XskMap> {
        Map::create(XSKMAP, 0, "softnic", queues).map(XskMap)
    }

    /// Packets of `queue` go to `socket` from now on, until it is closed.
    pub(crate) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.0.update(&queue, &(socket.as_raw_fd() as u32), 0)
    }
}

impl AsFd for XskMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// The map of this id, whatever it is.
pub(super) fn by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the command is that of maps.
    unsafe { fd_by_id(FD_BY_ID, id) }
}
