//! ISA-L, which others wrote, comes to the same parities, byte for byte. Left out where the library is not there.

mod common;

use common::{Message, Random};
use softnic_codes::{Code, Kernel, xor_all};
use softnic_isal::Isal;

#[test]
fn parities_are_those_of_isal() {
    let library = match Isal::load() {
        Ok(library) => library,
        Err(why) => return eprintln!("{why}"),
    };
    let mut random = Random(11);
    let small = (1..=40).flat_map(|k| (1..=16).map(move |m| (k, m)));
    for (k, m) in small.chain([(128, 127), (200, 50), (1, 100), (250, 5)]) {
        for chunk_len in [64, 1 + random.below(300)] {
            let data = random.bytes(k * chunk_len);
            let mut expected = vec![vec![0; chunk_len]; m];
            let chunks: Vec<&[u8]> = data.chunks(chunk_len).collect();
            let mut rows: Vec<&mut [u8]> = expected.iter_mut().map(|row| &mut row[..]).collect();
            library.encoder(k, m).encode(&chunks, &mut rows);
            for kernel in Kernel::available() {
                let code = Code::mds(k, m).unwrap().with_kernel(kernel);
                assert_eq!(Message::new(code, data.clone(), chunk_len, m).parities, expected, "{code:?}, {chunk_len}");
            }
        }
    }
}

#[test]
fn sums_are_those_of_isal() {
    let library = match Isal::load() {
        Ok(library) => library,
        Err(why) => return eprintln!("{why}"),
    };
    #[repr(align(64))]
    struct Aligned([u8; 1024]);
    let mut random = Random(12);
    let sources: Vec<Aligned> = (0..20).map(|_| Aligned(std::array::from_fn(|_| random.next() as u8))).collect();
    for n in 2..=20 {
        let sources: Vec<&[u8]> = sources[..n].iter().map(|source| &source.0[..]).collect();
        let (mut expected, mut sum) = (Aligned([0; 1024]), [0; 1024]);
        library.xor(&sources, &mut expected.0);
        xor_all(&mut sum, &sources);
        assert_eq!(sum, expected.0, "{n} sources");
    }
}
