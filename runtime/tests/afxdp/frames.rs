//! Frames arrive as they were sent, others stay with the kernel, and nothing stays behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use softnic_runtime::afxdp::{AfXdp, Options};
use softnic_runtime::{MAX_FRAME, PacketIo};

use crate::helper::open_elsewhere;
use crate::veth::{LIMIT, Veth, has_multi_buffer, ip, left_out};

/// The longest frame that veth hands to a program in the driver in one buffer.
const LINEAR: usize = 3520;

/// A frame for UDP port 4791 with `tags`, `len` bytes long, filled with what `seed` says.
pub(crate) fn roce(tags: usize, len: usize, seed: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = [[2, 0, 0, 0, 77, 2], [2, 0, 0, 0, 77, 1]].concat();
    (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
    let ip = frame.len() + 2;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(((len - ip) as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2, 0xc0, 0]);
    frame.extend(4791u16.to_be_bytes());
    frame.extend(((len - ip - 20) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((frame.len()..len).map(|i| (i * 7 + seed * 131) as u8));
    frame
}

/// Sends `count` frames and takes them in at the other end; they come as they were sent, in order.
fn exchange(from: &mut AfXdp, to: &mut AfXdp, count: usize, frame: impl Fn(usize) -> Vec<u8>) {
    let (mut sent, mut came, begin) = (0, 0, Instant::now());
    while came < count {
        assert!(begin.elapsed() < LIMIT, "{came} of {count} came: {:?} {:?}", from.statistics(), to.statistics());
        from.transmit(32, &mut |tx| {
            // As many as the receiver has room for: nothing makes this sender wait.
            if sent == count || sent - came >= 64 {
                return false;
            }
            tx.put_frame(&frame(sent)).unwrap();
            sent += 1;
            true
        })
        .unwrap();
        to.wait(Duration::from_millis(1)).unwrap();
        to.receive(32, &mut |got| {
            assert!(
                *got == frame(came)[..],
                "frame {came} of {} bytes came as {} others",
                frame(came).len(),
                got.len()
            );
            // Whoever takes a frame may write to it.
            got.fill(0xee);
            came += 1;
        })
        .unwrap();
    }
    assert_eq!((from.lost(), to.lost()), (0, 0));
}

#[test]
fn frames_of_all_lengths_in_both_directions_by_every_queue() {
    for queues in [1, 2] {
        let Some(veth) = Veth::new(queues, 9000) else { return };
        let mut ends = [0, 1].map(|side| veth.open(side, &Options::default()));
        for (side, end) in ends.iter().enumerate() {
            assert_eq!(end.len(), queues as usize);
            let (io, device) = (&end[0], end[0].device());
            assert_eq!((device.mac, device.mtu, device.rx_queues), (veth.mac(side), 9000, queues));
            assert_eq!((io.zero_copy(), io.native()), (false, true), "what veth has");
            let longest = if has_multi_buffer() { MAX_FRAME } else { LINEAR };
            assert_eq!((io.multi_buffer(), io.max_frame()), (has_multi_buffer(), longest), "what the kernel has");
        }
        let [a, b] = &mut ends;
        let longest = a[0].max_frame();
        for (q, (a, b)) in a.iter_mut().zip(b).enumerate() {
            assert_eq!((a.queue(), b.queue()), (q as u32, q as u32));
            let lengths = [64, 1500, LINEAR, LINEAR + 1, 3840, 3841, 4095, 4096, 4097, 4170, MAX_FRAME];
            for len in lengths.into_iter().filter(|&len| len <= longest) {
                exchange(a, b, 300, |n| roce(0, len, n));
                exchange(b, a, 300, |n| roce(n % 3, len, n));
            }
            exchange(a, b, 3000, |n| roce(n % 3, 64 + (n * 977) % (longest - 63), n));
            let s = b.statistics().unwrap();
            // Only where the ring begins anew can a frame's chunks be apart.
            let moved = if has_multi_buffer() { 1000 } else { 0 };
            assert!(s.rx_moved >= moved && s.rx_copied * 100 <= s.rx_moved, "{s:?}");
        }
    }
}

#[test]
fn a_small_mtu_needs_one_chunk_and_says_so() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let mut ends = [0, 1].map(|side| veth.open(side, &Options::default()).remove(0));
    assert_eq!((ends[0].multi_buffer(), ends[0].max_frame()), (false, 1514));
    let [a, b] = &mut ends;
    exchange(a, b, 3000, |n| roce(n % 2, 64 + n % 1400, n));
}

#[test]
fn without_multi_buffer_the_longest_frame_is_what_a_chunk_has_room_for() {
    let Some(veth) = Veth::new(1, 9000) else { return };
    let options = Options { multi_buffer: false, ..Options::default() };
    let mut ends = [0, 1].map(|side| veth.open(side, &options).remove(0));
    assert_eq!((ends[0].multi_buffer(), ends[0].max_frame()), (false, 3840));
    let [a, b] = &mut ends;
    exchange(a, b, 100, |n| roce(0, 3840, n));
    // Native programs without fragments are refused above a certain MTU.
    assert!(!a.native());
}

#[test]
fn a_frame_longer_than_any_is_counted_and_its_chunks_come_back() {
    let Some(veth) = Veth::new(1, 9000) else { return };
    if !has_multi_buffer() {
        return left_out("before Linux 6.6 a frame longer than a chunk is not seen as such");
    }
    let mut b = veth.open(1, &Options::default()).remove(0);
    let kernel = veth.inside(0, || UdpSocket::bind((veth.address(0), 0)).unwrap());
    let begin = Instant::now();
    let (mut came, mut sent) = (0, 0);
    while b.statistics().unwrap().rx_too_long < 1000 {
        assert!(begin.elapsed() < LIMIT, "{:?}", b.statistics());
        kernel.send_to(&[1; 8900], (veth.address(1), 4791)).unwrap();
        kernel.send_to(&[2; 100], (veth.address(1), 4791)).unwrap();
        sent += 1;
        b.receive(32, &mut |frame| {
            assert_eq!((frame.len(), frame[50]), (142, 2));
            came += 1;
        })
        .unwrap();
    }
    assert!(came > 900 && sent >= 1000, "{came}");
    assert!(b.lost() >= 1000);
}

#[test]
fn after_a_flood_every_chunk_is_there_still() {
    let Some(veth) = Veth::new(1, 9000) else { return };
    let [mut a, mut b] = [0, 1].map(|side| veth.open(side, &Options::default()).remove(0));
    for len in [64, 4170.min(a.max_frame())] {
        let (frame, end) = (roce(0, len, 0), Instant::now() + Duration::from_millis(300));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while Instant::now() < end {
                    a.transmit(32, &mut |tx| tx.put_frame(&frame).is_ok()).unwrap();
                }
            });
            while Instant::now() < end {
                b.receive(32, &mut |got| assert!(*got == frame[..])).unwrap();
            }
        });
        // What is left of it comes.
        while b.receive(32, &mut |_| ()).unwrap() > 0 || a.transmit(0, &mut |_| false).unwrap() > 0 {
            b.wait(Duration::from_millis(10)).unwrap();
        }
        let lost = a.lost() + b.lost();
        // More than there are chunks on either side, all at once.
        let filled = a.transmit(512, &mut |tx| tx.put_frame(&frame).is_ok()).unwrap();
        assert!(filled >= 256, "{filled} frames found a chunk");
        let mut came = 0;
        let begin = Instant::now();
        while came < filled {
            assert!(begin.elapsed() < LIMIT, "{came} of {filled} came: {:?} {:?}", a.statistics(), b.statistics());
            a.transmit(0, &mut |_| false).unwrap();
            came += b.receive(usize::MAX, &mut |_| ()).unwrap() + (a.lost() + b.lost() - lost) as usize;
        }
    }
}

#[test]
fn all_other_traffic_stays_with_the_kernel() {
    let Some(veth) = Veth::new(2, 1500) else { return };
    let options = Options { queues: Some(1), ..Options::default() };
    let mut ends = [0, 1].map(|side| veth.open(side, &options).remove(0));
    let listener = veth.inside(1, || TcpListener::bind((veth.address(1), 7)).unwrap());
    let mut client = veth.inside(0, || TcpStream::connect_timeout(&(veth.address(1), 7).into(), LIMIT).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    let said: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    let (out, mut heard) = (said.clone(), vec![0; said.len()]);
    let writer = std::thread::spawn(move || client.write_all(&out));
    server.read_exact(&mut heard).unwrap();
    writer.join().unwrap().unwrap();
    assert!(heard == said);
    let [a, b] = &mut ends;
    exchange(a, b, 10, |n| roce(0, 500, n));
    // No socket is open on the second queue: what comes in by it goes to the kernel, and to whoever has the port there.
    let port = veth.inside(1, || UdpSocket::bind((veth.address(1), 4791)).unwrap());
    port.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut by = [0, 0];
    let begin = Instant::now();
    for n in 0u16.. {
        let client = veth.inside(0, || UdpSocket::bind((veth.address(0), 0)).unwrap());
        client.send_to(&[5; 100], (veth.address(1), 4791)).unwrap();
        by[0] += b.receive(32, &mut |_| ()).unwrap();
        by[1] += usize::from(port.recv(&mut [0; 200]).is_ok());
        if by[0] > 0 && by[1] > 0 {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "after {n} source ports: {by:?}");
    }
}

#[test]
fn the_program_goes_with_the_last_queue_and_a_queue_can_be_opened_again_at_once() {
    let Some(veth) = Veth::new(2, 1500) else { return };
    for _ in 0..10 {
        veth.await_no_program(0);
        let mut queues = veth.open(0, &Options::default());
        queues.pop();
        assert!(veth.has_program(0));
    }
    veth.await_no_program(0);
}

#[test]
fn the_program_goes_when_the_process_is_killed() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let mut helper = open_elsewhere(&format!("ip netns exec {}", veth.namespaces[0]), veth.interface(0));
    assert_eq!(helper.said, "opened with 4096 chunks");
    assert!(veth.has_program(0));
    helper.kill();
    veth.await_no_program(0);
    drop(veth.open(0, &Options::default()));
}

#[test]
fn a_wait_ends_when_a_frame_comes_or_the_time_is_over() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let [mut a, mut b] = [0, 1].map(|side| veth.open(side, &Options::default()).remove(0));
    let begin = Instant::now();
    b.wait(Duration::from_millis(20)).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(19));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            a.transmit(1, &mut |tx| tx.put_frame(&roce(0, 64, 0)).is_ok()).unwrap();
        });
        b.wait(LIMIT).unwrap();
    });
    assert_eq!(b.receive(9, &mut |_| ()).unwrap(), 1);
    assert!(begin.elapsed() < LIMIT);
}

#[test]
fn a_device_that_is_down_keeps_frames_until_it_has_no_more_room() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let options = Options { tx_chunks: 64, ..Options::default() };
    let mut a = veth.open(0, &options).remove(0);
    ip(&format!("-n {} link set {} down", veth.namespaces[0], veth.interface(0))).unwrap();
    let frame = roce(0, 200, 0);
    assert_eq!(a.transmit(1000, &mut |tx| tx.put_frame(&frame).is_ok()).unwrap(), 64);
    assert_eq!(a.transmit(1000, &mut |_| unreachable!("there is no room")).unwrap(), 0);
    ip(&format!("-n {} link set {} up", veth.namespaces[0], veth.interface(0))).unwrap();
    let begin = Instant::now();
    while a.transmit(1, &mut |tx| tx.put_frame(&frame).is_ok()).unwrap() == 0 {
        assert!(begin.elapsed() < LIMIT);
        a.wait(Duration::from_millis(1)).unwrap();
    }
}
