//! What is said where a page cannot be made, or only a part of one.

use super::{Folder, corpus, data, softnic};

fn refused(arguments: &[&str], why: &str) {
    let output = softnic(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains(why), "{arguments:?}: {said}");
}

#[test]
fn what_is_no_capture_and_no_trace_is_refused() {
    let folder = Folder::new("refused");
    let (text, object, empty, page) =
        (folder.file("text"), folder.file("object"), folder.file("empty"), folder.file("page.html"));
    std::fs::write(&text, "some text\n").unwrap();
    std::fs::write(&object, "{\"a\": 1}\n").unwrap();
    std::fs::write(&empty, "").unwrap();
    refused(&["report", &text, "-o", &page], "a report is made of captures");
    refused(&["report", &object, "-o", &page], "neither a capture, nor a trace");
    refused(&["report", &empty, "-o", &page], "is empty");
    refused(&["report", "/nowhere.pcap", "-o", &page], "/nowhere.pcap: No such file");
    assert!(!std::path::Path::new(&page).exists());
}

#[test]
fn a_page_that_cannot_be_written_is_named_and_no_input_is_overwritten() {
    let folder = Folder::new("written");
    let capture = corpus("loss_send_middle_nak.pcap");
    refused(&["report", &capture, "-o", "/dev/full"], "cannot write the report /dev/full: No space");
    refused(&["report", &capture, "-o", "/nowhere/r.html"], "cannot write the report /nowhere/r.html: No such file");
    let copy = folder.file("run.pcap");
    std::fs::copy(&capture, &copy).unwrap();
    refused(&["report", &copy, "-o", &copy], "is both read and written");
    assert_eq!(std::fs::read(&capture).unwrap(), std::fs::read(&copy).unwrap());
}

#[test]
fn a_file_that_was_cut_off_is_shown_as_far_as_it_goes() {
    let folder = Folder::new("cut");
    let (cut, page) = (folder.file("cut.pcap"), folder.file("page.html"));
    let whole = std::fs::read(corpus("loss_send_middle_nak.pcap")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    refused(&["report", &cut, "-o", &page], "the page shows what stood before");
    let shown = data(&std::fs::read_to_string(&page).unwrap());
    assert!(shown["files"][0]["packets"] == 24 && shown["files"][0]["fault"].is_string(), "{}", shown["files"]);

    let trace = folder.file("cut.sqlog");
    let whole = softnic(&["trace", &corpus("loss_send_middle_nak.pcap")]).stdout;
    std::fs::write(&trace, &whole[..whole.len() - 10]).unwrap();
    refused(&["report", &trace, "-o", &page], "the page shows what stood before");
    let shown = data(&std::fs::read_to_string(&page).unwrap());
    assert_eq!(shown["files"][0]["packets"], 24);
}
