//! What `docs/faults.md` shows is what scripts are.

use softnic_fault_injector::{Script, Spec};

const TEXT: &str = include_str!("../../docs/faults.md");

#[test]
fn every_script_in_the_documentation_is_one_and_every_key_occurs() {
    let scripts: Vec<&str> = TEXT.split("```toml\n").skip(1).filter_map(|s| s.split("```").next()).collect();
    assert_eq!(scripts.len(), 7);
    for s in &scripts {
        Script::parse(s).unwrap_or_else(|e| panic!("{e} in\n{s}"));
    }
    let of_calls = scripts.iter().find(|script| script.contains("[[cm]]")).expect("a script of calls");
    for kind in ["call", "completion", "async", "cm"] {
        let unknown = Script::parse(&format!("[[{kind}]]\nx = 1")).unwrap_err().to_string();
        let keys = unknown.split(&format!("a {kind} has ")).nth(1).expect("the list of all keys").split(", ");
        for key in keys {
            let shown = [format!("\n{key} = "), format!(" or {key} = "), format!("{key}, "), format!("{key} and ")];
            assert!(shown.iter().any(|shown| of_calls.contains(shown.as_str())), "{kind}: {key} is not shown");
        }
    }
    let unknown = Script::parse("[[event]]\nx = 1").unwrap_err().to_string();
    let keys = unknown.split("an event has ").nth(1).expect("the list of all keys").split(", ");
    for key in keys {
        assert!(scripts[0].contains(&format!("{key} = ")), "{key} is not shown");
    }
}

#[test]
fn every_fault_of_a_spec_is_in_the_table() {
    let unknown = "x=1".parse::<Spec>().unwrap_err().to_string();
    let all = unknown.split("knows ").nth(1).expect("the list of all faults");
    for fault in all.split(", ").flat_map(|f| f.split(" and ")) {
        assert!(TEXT.contains(&format!("| `{fault}` |")), "{fault} is not in the table");
    }
}
