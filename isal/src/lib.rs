//! ISA-L, the library of others that has the same codes: loaded where it is installed, for tests, benchmarks and an experiment.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::ptr;

/// Names a library to use in place of Debian's.
pub const VARIABLE: &str = "SOFTNIC_ISAL";
/// Debian's package libisal2 has it.
pub const DEBIAN: &str = "libisal.so.2";

type GenerateMatrix = unsafe extern "C" fn(*mut u8, c_int, c_int);
type InitTables = unsafe extern "C" fn(c_int, c_int, *mut u8, *mut u8);
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *mut u8, *mut *mut u8, *mut *mut u8);
type XorGen = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

/// The functions of a library.
#[derive(Debug, Clone, Copy)]
pub struct Isal {
    generate_matrix: GenerateMatrix,
    init_tables: InitTables,
    encode_data: EncodeData,
    /// For tables as libraries without GFNI make them.
    encode_data_avx2: Option<EncodeData>,
    xor_gen: XorGen,
}

/// Parities of one code.
#[derive(Debug, Clone)]
pub struct Encoder {
    k: usize,
    m: usize,
    tables: Vec<u8>,
    encode: EncodeData,
}

impl Isal {
    /// The library that [`VARIABLE`] names, else Debian's; the error says why there is none.
    pub fn load() -> Result<Isal, String> {
        Isal::open(&std::env::var(VARIABLE).unwrap_or(DEBIAN.into()))
    }

    /// A library by its name or path.
    pub fn open(name: &str) -> Result<Isal, String> {
        let c_name = CString::new(name).map_err(|e| e.to_string())?;
        // SAFETY: a name that ends with zero; what the library does when it is loaded is up to who installed it.
        let library = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("left out: there is no {name} (Debian's package libisal2)"));
        }
        let symbol = |symbol: &str| {
            let c_symbol = CString::new(symbol).map_err(|e| e.to_string())?;
            // SAFETY: the library is open, and is never closed.
            let address = unsafe { libc::dlsym(library, c_symbol.as_ptr()) };
            if address.is_null() { Err(format!("{name} has no {symbol}")) } else { Ok(address) }
        };
        let has_gfni = symbol("ec_init_tables_gfni").is_ok();
        let avx2 = symbol("ec_encode_data_avx2").ok().filter(|_| !has_gfni && has_avx2());
        // SAFETY: the types are those of `erasure_code.h` and `raid.h`, where all of these are functions.
        unsafe {
            Ok(Isal {
                generate_matrix: std::mem::transmute::<*mut c_void, GenerateMatrix>(symbol("gf_gen_cauchy1_matrix")?),
                init_tables: std::mem::transmute::<*mut c_void, InitTables>(symbol("ec_init_tables")?),
                encode_data: std::mem::transmute::<*mut c_void, EncodeData>(symbol("ec_encode_data")?),
                encode_data_avx2: avx2.map(|address| std::mem::transmute::<*mut c_void, EncodeData>(address)),
                xor_gen: std::mem::transmute::<*mut c_void, XorGen>(symbol("xor_gen")?),
            })
        }
    }

    /// For parities of MDS(k, m), by the instructions that the library chooses.
    pub fn encoder(&self, k: usize, m: usize) -> Encoder {
        let mut matrix = vec![0; (k + m) * k];
        let mut tables = vec![0; 32 * k * m];
        // SAFETY: the matrix has k + m rows of k bytes, and the tables 32 bytes for each coefficient of the last m.
        unsafe {
            (self.generate_matrix)(matrix.as_mut_ptr(), (k + m) as c_int, k as c_int);
            (self.init_tables)(k as c_int, m as c_int, matrix[k * k..].as_mut_ptr(), tables.as_mut_ptr());
        }
        Encoder { k, m, tables, encode: self.encode_data }
    }

    /// The same by AVX2 alone, where the library can be told to.
    pub fn encoder_avx2(&self, k: usize, m: usize) -> Option<Encoder> {
        let encode = self.encode_data_avx2?;
        Some(Encoder { encode, ..self.encoder(k, m) })
    }

    /// The sum of the sources, all as long as the destination and all at multiples of 32 bytes.
    ///
    /// # Panics
    /// When one is not, or when there are more than 32.
    pub fn xor(&self, sources: &[&[u8]], destination: &mut [u8]) {
        let len = destination.len();
        let mut pointers = [ptr::null_mut::<c_void>(); 33];
        for (pointer, source) in pointers.iter_mut().zip(sources) {
            assert_eq!((source.len(), source.as_ptr().addr() % 32), (len, 0));
            *pointer = source.as_ptr().cast_mut().cast();
        }
        assert!(sources.len() <= 32 && destination.as_ptr().addr().is_multiple_of(32));
        pointers[sources.len()] = destination.as_mut_ptr().cast();
        // SAFETY: as many pointers, each to `len` bytes; the last alone is written to.
        let failed = unsafe { (self.xor_gen)(sources.len() as c_int + 1, len as c_int, pointers.as_mut_ptr()) };
        assert_eq!(failed, 0);
    }
}

/// Whether this processor can.
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

impl Encoder {
    /// Writes all parities of k chunks, all of the same length.
    ///
    /// # Panics
    /// When these are not as many as the code has, or not of the same length.
    pub fn encode(&mut self, data: &[&[u8]], parities: &mut [&mut [u8]]) {
        let len = data[0].len();
        assert_eq!((data.len(), parities.len()), (self.k, self.m));
        assert!(data.iter().all(|chunk| chunk.len() == len) && parities.iter().all(|chunk| chunk.len() == len));
        let mut from = [ptr::null_mut(); 256];
        let mut to = [ptr::null_mut(); 256];
        from.iter_mut().zip(data).for_each(|(pointer, chunk)| *pointer = chunk.as_ptr().cast_mut());
        to.iter_mut().zip(parities.iter_mut()).for_each(|(pointer, chunk)| *pointer = chunk.as_mut_ptr());
        let (k, m) = (self.k as c_int, self.m as c_int);
        // SAFETY: k pointers to sources, m to destinations, all of `len` bytes, and the tables of k times m coefficients.
        unsafe {
            (self.encode)(len as c_int, k, m, self.tables.as_mut_ptr(), from.as_mut_ptr(), to.as_mut_ptr());
        }
    }
}
