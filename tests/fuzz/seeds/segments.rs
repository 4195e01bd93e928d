//! Segments of the event journal: whole, torn, damaged, and none at all.

use brink_stream::journal::record::{Head, Record, What};

use super::write;

fn records(seqs: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for seq in seqs {
        let text = format!("{{\"type\":\"pressure\",\"seq\":{seq}}}\n");
        let record = Record {
            what: What::Line,
            seq,
            written: 1_795_000_000_000_000,
            text: text.as_bytes(),
        };
        record.encode(&mut bytes);
    }
    bytes
}

pub(super) fn event_journal() {
    let whole = [b"\0".to_vec(), records(1..6)].concat();
    write("event-journal", "five-events", &whole);
    write("event-journal", "torn", &whole[..whole.len() - 9]);
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    write("event-journal", "damaged", &damaged);
    let zeros = [whole.clone(), vec![0; 90], records(9..11)].concat();
    write("event-journal", "zeros-between", &zeros);
    let head = Head {
        boot_id: "another".to_owned(),
        begun: 5,
    };
    let head = head.encode().unwrap_or([0; _]);
    let file = [&[1][..], &head, &records(1..3)].concat();
    write("event-journal", "whole-file", &file);
    write(
        "event-journal",
        "foreign",
        b"\x01root:x:0:0:root:/root:/bin/sh\n",
    );
    write("event-journal", "head-cut-off", &file[..50]);
}
