//! Who is not let in, and is told why: beyond limits, with nobody to serve, kept out by the mode.

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_runtime::api::{MrError, ObjectError, QpOptions};
use softnic_runtime::share::{Limits, ShareError, ShareOptions};

use crate::ends::{client, inside};
use crate::veth::Veth;
use crate::world::{HERE, clients, devices, open, share, until, usual};

/// Without any privileges, as nobody.
const NOBODY: &str =
    "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --bounding-set -all --no-new-privs";

#[test]
fn nobody_serves_the_interface_and_a_second_daemon_is_told_of_the_first() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let why = open(&veth, HERE, "shared").err().unwrap().to_string();
    assert!(why.contains("nobody shares sn0: start `softnic share --dev afxdp:sn0`"), "{why}");
    let daemon = share(&veth, usual(&veth)).unwrap();
    let Err(ShareError::Served { pid, .. }) = share(&veth, usual(&veth)) else { panic!("it is served already") };
    assert_eq!(pid, std::process::id().to_string());
    let why = open(&veth, HERE, "afxdp").err().unwrap().to_string();
    assert!(why.contains("`softnic share`") && why.contains("shared:sn0"), "{why}");
    drop(daemon);
    assert!(open(&veth, HERE, "shared").is_err());
    drop(share(&veth, usual(&veth)).unwrap());
}

#[test]
fn there_are_as_many_clients_queue_pairs_and_regions_as_the_daemon_allows() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let limits = Limits { queue_pairs: 2, regions: 3, rate: 0 };
    let options = ShareOptions { clients: 2, limits, ..usual(&veth) };
    let _daemon = share(&veth, options).unwrap();
    // The first one of the daemon's own process is the daemon's, and does not count.
    let _warden = open(&veth, HERE, "shared").unwrap();
    let first = open(&veth, HERE, "shared").unwrap();
    assert_eq!(first.limits(), limits);
    let (pd, cq) = (first.alloc_pd(), first.create_cq(8).unwrap());
    let qp = || pd.create_qp(&QpOptions::new(QpKind::Rc, &cq));
    let _two = [qp().unwrap(), qp().unwrap()];
    assert_eq!(qp().err(), Some(ObjectError::NoNumbers));
    let mr = || pd.alloc_mr(64, Access::LOCAL_WRITE);
    let three = [mr().unwrap(), mr().unwrap(), mr().unwrap()];
    assert_eq!(mr().err(), Some(MrError::NoKeys));
    drop(three);
    mr().unwrap();
    let second = open(&veth, HERE, "shared").unwrap();
    let why = open(&veth, HERE, "shared").err().unwrap().to_string();
    assert!(why.contains("it has 2 clients already"), "{why}");
    drop(second);
    until("its place is free", || open(&veth, HERE, "shared").is_ok());
}

#[test]
fn a_process_without_privileges_is_a_client_if_the_mode_lets_it() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let as_nobody = format!("{} {NOBODY}", inside(&veth, HERE));
    let daemon = share(&veth, ShareOptions { mode: 0o660, ..usual(&veth) }).unwrap();
    let kept_out = client(&as_nobody, "open");
    assert!(kept_out.said.contains("not permitted to use /run/softnic/sn0"), "{}", kept_out.said);
    drop(daemon);
    let options = ShareOptions { mode: 0o660, group: Some(65534), clients_of_user: 2, ..usual(&veth) };
    let _daemon = share(&veth, options).unwrap();
    let let_in = [(); 2].map(|()| client(&as_nobody, "open"));
    assert!(let_in.iter().all(|process| process.said.starts_with("opened shared:sn0")), "{}", let_in[0].said);
    assert!(clients(&veth).iter().all(|client| client.uid == 65534 && client.pid != std::process::id()));
    let third = client(&as_nobody, "open");
    assert!(third.said.contains("user 65534 has 2 clients already"), "{}", third.said);
    // Another user is let in all the same.
    drop(open(&veth, HERE, "shared").unwrap());
    drop(let_in);
    until("killed clients leave nothing", || devices(&veth).is_empty() && clients(&veth).is_empty());
}
