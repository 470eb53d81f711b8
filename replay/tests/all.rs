//! scratch
use softnic_replay::*;
#[test]
fn all() {
    for f in std::env::var("F").unwrap().split_whitespace() {
        let r = replay(std::fs::File::open(f).unwrap(), &Options::default()).unwrap();
        println!(
            "{f}: exit {} diffs {} allowed {} undet {} counts {:?} skipped {:?}",
            r.exit_code(),
            r.differences.len(),
            r.allowed.len(),
            r.undetermined.len(),
            r.counts(),
            r.skipped
        );
        for d in r.differences.iter().take(8) {
            println!(
                "   D {} [{}] {}: ours {} | captured {} | {}",
                d.packet, d.flow, d.role, d.ours, d.captured, d.why
            );
        }
        for d in r.allowed.iter().take(4) {
            println!("   A {} {:?}", d.packet, d.rule);
        }
        for d in r.undetermined.iter().take(4) {
            println!("   U {} {:?}", d.packet, d.why);
        }
    }
}
