//! The XDP program on the interface: redirects RoCE packets to their clients, and passes all others to the kernel.

use super::super::maps::Maps;
use super::addressee::Addressee;
use super::delivery::{Length, deliver, drop_for_nobody, hold_all};
use crate::bpf::assembler::{Assembler, Code, Reg, Size};
use crate::bpf::look::{DATA, DATA_END, Look};
use crate::bpf::{XDP_DROP, XDP_PASS};

/// The program for an interface whose driver runs XDP. It leaves packets for groups to [`spread`](super::spread()), because XDP cannot copy
/// a packet.
pub(crate) fn ingress(maps: &Maps) -> Code {
    use Reg::{R0, R1, R2, R3, R6};
    let maps = maps.fds();
    let mut a = Assembler::default();
    let [pass, process, nobody] = [(); 3].map(|()| a.label());
    a.copy(R6, R1);
    a.load(Size::U32, R2, R1, DATA);
    a.load(Size::U32, R3, R1, DATA_END);
    Look { tags: true, source: None, cut_off: pass, other: pass }.for_roce(&mut a);
    Addressee { process, everybody: pass, nobody, cut_off: nobody }.find(&mut a, &maps);

    a.place(process);
    deliver(&mut a, &maps, Length::Xdp, nobody);

    a.place(nobody);
    hold_all(&mut a, &maps);
    drop_for_nobody(&mut a, &maps, XDP_DROP);

    a.place(pass);
    a.set(R0, XDP_PASS);
    a.exit();
    a.finish()
}
