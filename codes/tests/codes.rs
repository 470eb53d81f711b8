//! What is lost comes back: codes of all sizes, drawn losses and all losses, short chunks, further rows, and what is refused.

mod common;

use common::{Message, Random};
use softnic_codes::{ChunkSet, Code, CodeError, DecodeError, Family, Kernel};

fn kernels() -> Vec<Kernel> {
    Kernel::available().collect()
}

#[test]
fn any_m_losses_of_every_size() {
    let mut random = Random(1);
    for (k, m) in (1..=40).flat_map(|k| (0..=16).map(move |m| (k, m))) {
        for kernel in kernels() {
            let code = Code::mds(k, m).unwrap().with_kernel(kernel);
            let chunk_len = 1 + random.below(200);
            let chunks = if random.below(4) == 0 { 1 + random.below(k) } else { k };
            let bytes = chunks * chunk_len - random.below(chunk_len);
            let message = Message::new(code, random.bytes(bytes), chunk_len, m);
            // Data and parities are lost alike: with m in all gone, the rest must do.
            for _ in 0..3 {
                let gone = random.some(m, chunks + m);
                let lost = gone.iter().filter(|&i| i < chunks).collect();
                let rows = (0..m).filter(|row| !gone.contains(chunks + row)).collect();
                assert!(message.lose(&lost, &rows), "{code:?}: {lost:?}");
            }
            if m < chunks {
                let lost = random.some(m + 1, chunks);
                assert!(!message.lose(&lost, &ChunkSet::below(m)), "{code:?}: one more than m");
            }
        }
    }
}

#[test]
fn all_losses_and_all_parities_of_small_codes() {
    let mut random = Random(2);
    for (k, m) in [(1, 1), (1, 3), (2, 2), (3, 2), (4, 4), (5, 3), (6, 2), (7, 1)] {
        for family in [Family::Mds, Family::Xor] {
            let code = Code::new(family, k, m).unwrap();
            let message = Message::new(code, random.bytes(k * 9 - 4), 9, m);
            for (lost, rows) in (0..1 << k).flat_map(|lost| (0..1 << m).map(move |rows| (lost, rows))) {
                let (lost, rows) = (ChunkSet::from_words([lost]), ChunkSet::from_words([rows]));
                let group = |row: usize| lost.iter().filter(|j| j % m == row).count();
                let possible = match family {
                    Family::Mds => lost.len() <= rows.len(),
                    Family::Xor => (0..m).all(|row| group(row) <= usize::from(rows.contains(row))),
                };
                assert_eq!(message.lose(&lost, &rows), possible, "{code}: {lost:?} by {rows:?}");
            }
        }
    }
}

#[test]
fn one_loss_a_group_of_every_xor() {
    let mut random = Random(3);
    for (k, m) in (1..=40).flat_map(|k| (1..=16).map(move |m| (k, m))) {
        let kernel = kernels()[k % kernels().len()];
        let code = Code::xor(k, m).unwrap().with_kernel(kernel);
        let chunk_len = 1 + random.below(300);
        let bytes = k * chunk_len - random.below(chunk_len);
        let message = Message::new(code, random.bytes(bytes), chunk_len, m);
        let one_of = |row: usize, random: &mut Random| (k > row).then(|| row + m * random.below((k - row).div_ceil(m)));
        let lost: ChunkSet = (0..m).filter_map(|row| one_of(row, &mut random)).collect();
        assert!(message.lose(&lost, &ChunkSet::below(m)), "{code:?}");
        assert_eq!(message.lose(&lost, &ChunkSet::below(m - 1)), k < m, "{code:?} without its last parity");
        // The definition.
        for (row, parity) in message.parities.iter().enumerate() {
            let mut sum = vec![0; chunk_len];
            for chunk in message.data.chunks(chunk_len).skip(row).step_by(m) {
                sum.iter_mut().zip(chunk).for_each(|(sum, byte)| *sum ^= byte);
            }
            assert_eq!(&sum, parity, "{code:?}: row {row}");
        }
    }
}

#[test]
fn chunks_that_are_longer_than_a_block_of_work() {
    let mut random = Random(4);
    for family in [Family::Mds, Family::Xor] {
        for kernel in kernels() {
            let code = Code::new(family, 9, 3).unwrap().with_kernel(kernel);
            let message = Message::new(code, random.bytes(8 * 20_001 + 9000), 20_001, 3);
            assert!(message.lose(&[0, 4, 8].into_iter().collect(), &ChunkSet::below(3)), "{code:?}");
        }
    }
}

#[test]
fn all_kernels_write_the_same_parities() {
    let mut random = Random(5);
    for family in [Family::Mds, Family::Xor] {
        for chunk_len in [1, 31, 64, 100, 4096, 10_000] {
            let data = random.bytes(11 * chunk_len - chunk_len / 3);
            let code = Code::new(family, 12, 7).unwrap();
            let parities = |kernel| Message::new(code.with_kernel(kernel), data.clone(), chunk_len, 7).parities;
            let expected = parities(Kernel::PORTABLE);
            assert!(Kernel::available().all(|kernel| parities(kernel) == expected), "{code}, {chunk_len} bytes");
        }
    }
}

#[test]
fn chunks_added_in_any_order_and_number_come_to_the_same_parities() {
    let mut random = Random(6);
    for family in [Family::Mds, Family::Xor] {
        for (k, m) in [(1, 1), (5, 2), (8, 3), (20, 8), (32, 9)] {
            let code = Code::new(family, k, m).unwrap();
            let chunk_len = 1 + random.below(500);
            let bytes = k * chunk_len - random.below(chunk_len);
            let message = Message::new(code, random.bytes(bytes), chunk_len, m);
            let mut in_one_piece = vec![0; m * chunk_len];
            let mut parities = vec![vec![0; chunk_len]; m];
            let mut left: Vec<usize> = (0..k).collect();
            while !left.is_empty() {
                let at = random.below(left.len());
                // Several at once, as far as they follow each other.
                let many = 1 + (1..random.below(6)).take_while(|i| left.get(at + i) == Some(&(left[at] + i))).count();
                let j = left[at];
                left.drain(at..at + many);
                let data = &message.data[j * chunk_len..bytes.min((j + many) * chunk_len)];
                code.add(j, data, chunk_len, &mut parities);
                code.add_in_one_piece(j, data, chunk_len, &mut in_one_piece);
            }
            assert_eq!(parities, message.parities, "{code}");
            assert_eq!(in_one_piece, message.parities.concat(), "{code}");
        }
    }
}

#[test]
fn further_rows_repair_as_the_first_do() {
    let mut random = Random(7);
    for (k, m) in [(1, 0), (32, 8), (100, 10), (128, 128), (255, 1), (1, 255)] {
        let code = Code::mds(k, m).unwrap();
        let rows = code.rows();
        assert_eq!(rows, 256 - k);
        let message = Message::new(code, random.bytes(k * 33), 33, rows);
        let most = k.min(rows);
        for lost in [1, most / 2 + 1, most] {
            let (lost, by) = (random.some(lost, k), random.some(lost, rows));
            assert!(message.lose(&lost, &by), "{code}");
        }
        // One row by itself is the same.
        let (row, mut parity) = (rows - 1, [[0; 33]]);
        code.encode_rows(row, &message.data, 33, &mut parity);
        assert_eq!(parity[0][..], message.parities[row]);
        let mut piece = vec![0; 33 * rows.min(3)];
        code.encode_in_one_piece(rows - rows.min(3), &message.data, 33, &mut piece);
        assert_eq!(piece, message.parities[rows - rows.min(3)..].concat());
    }
}

#[test]
fn chunks_and_bytes_that_are_missing_count_as_zeros() {
    for family in [Family::Mds, Family::Xor] {
        let code = Code::new(family, 10, 4).unwrap();
        let data = Random(8).bytes(10 * 50);
        for bytes in [0, 1, 49, 50, 51, 149, 350, 499] {
            let mut filled_up = data[..bytes].to_vec();
            filled_up.resize(500, 0);
            let whole = Message::new(code, filled_up, 50, 4);
            assert_eq!(Message::new(code, data[..bytes].to_vec(), 50, 4).parities, whole.parities, "{code}: {bytes}");
        }
    }
}

#[test]
fn codes_that_there_are_not() {
    for family in [Family::Mds, Family::Xor] {
        assert_eq!(Code::new(family, 0, 3), Err(CodeError::NoData));
        assert_eq!(Code::new(family, 250, 7), Err(CodeError::TooMany { k: 250, m: 7 }));
        assert_eq!(Code::new(family, usize::MAX, 1), Err(CodeError::TooMany { k: usize::MAX, m: 1 }));
        let code = Code::new(family, 250, 6).unwrap();
        assert_eq!((code.k(), code.m(), code.family()), (250, 6, family));
    }
    assert_eq!(Code::mds(32, 8).unwrap().to_string(), "mds(32, 8)");
}

#[test]
fn what_cannot_be_decoded_is_refused_by_its_reason() {
    for family in [Family::Mds, Family::Xor] {
        let code = Code::new(family, 4, 2).unwrap();
        let message = Message::new(code, Random(9).bytes(40), 10, 2);
        let decode = |data: &[u8], chunk_len, rows: &[(usize, &[u8])]| {
            code.decode(&mut data.to_vec(), chunk_len, &[0, 1, 2].into_iter().collect(), rows)
        };
        let parity = |row: usize| (row, &message.parities[row][..]);
        assert_eq!(decode(&message.data, 10, &[parity(1)]), Ok(1));
        assert_eq!(decode(&message.data[..30], 10, &[]), Ok(0), "nothing is lost");
        assert_eq!(decode(&message.data, 10, &[]), Err(DecodeError::TooManyLost { lost: 1, parities: 0 }));
        assert_eq!(decode(&message.data, 9, &[]), Err(DecodeError::Geometry { bytes: 40, chunk_len: 9 }));
        assert_eq!(decode(&message.data, 0, &[]), Err(DecodeError::Geometry { bytes: 40, chunk_len: 0 }));
        assert_eq!(decode(&message.data, 10, &[parity(1), parity(1)]), Err(DecodeError::RowTwice(1)));
        let short = (1, &message.parities[1][..9]);
        assert_eq!(decode(&message.data, 10, &[short]), Err(DecodeError::ParityLength { row: 1, bytes: 9 }));
        let far = (code.rows(), &message.parities[1][..]);
        assert_eq!(decode(&message.data, 10, &[far]), Err(DecodeError::NoSuchRow(code.rows())));
        let in_one_piece = |rows: &ChunkSet, parity: &[u8]| {
            let present = [0, 1, 2].into_iter().collect();
            code.decode_in_one_piece(&mut message.data.clone(), 10, &present, rows, parity)
        };
        assert_eq!(in_one_piece(&ChunkSet::below(2), &[0; 19]), Err(DecodeError::ParityLength { row: 1, bytes: 9 }));
        let far = [code.rows()].into_iter().collect();
        assert_eq!(in_one_piece(&far, &[0; 20]), Err(DecodeError::NoSuchRow(code.rows())));
    }
}

#[test]
#[should_panic = "data chunks up to 5, where the code has 4"]
fn more_data_than_the_code_has_is_not_encoded() {
    Code::mds(4, 1).unwrap().encode(&[0; 41], 10, &mut [[0; 10]]);
}

#[test]
#[should_panic = "parity rows up to 3, where the code has 2"]
fn more_rows_than_the_code_has_are_not_encoded() {
    Code::xor(4, 2).unwrap().encode(&[0; 40], 10, &mut [[0; 10]; 3]);
}

#[test]
#[should_panic = "a parity chunk has not the length of a chunk"]
fn parities_of_another_length_are_not_encoded() {
    Code::mds(4, 2).unwrap().encode(&[0; 40], 10, &mut [[0; 11]; 2]);
}
