//! The part of `brink status` about disks: how measuring goes, and who uses most.

use crate::control::protocol::{DiskView, StorageView};
use crate::record::text::{counted, stretch, unsigned};
use crate::terminal::{Column, Paint, Screen};

/// Workloads in the table.
const MOST: usize = 5;

pub(super) fn storage(screen: &mut Screen, view: &StorageView) {
    screen.gap();
    let folders = counted(u64::from(view.folders), "folder");
    let age = match view.round_age_ms {
        Some(age) => format!("measured {} ago", stretch(age)),
        None => "not all measured yet".to_owned(),
    };
    screen.heading(&format!("Local storage: {folders}, {age}"));
    let unknown = || "unknown".to_owned();
    let row = |one: &DiskView| {
        let bytes = |figure: Option<u64>| figure.map_or_else(unknown, unsigned);
        // What it does not have at all is not unknown.
        let of_containers = |figure: Option<u64>| match figure {
            None if one.folders_alone => "–".to_owned(),
            figure => bytes(figure),
        };
        let sign = if one.partial { " or more" } else { "" };
        vec![
            one.workload.clone(),
            bytes(one.bytes()) + sign,
            one.inodes.map_or_else(unknown, |inodes| inodes.to_string()),
            bytes(one.volumes_bytes),
            of_containers(one.logs_bytes),
            of_containers(one.rootfs_bytes),
        ]
    };
    let rows: Vec<Vec<String>> = view.workloads.iter().take(MOST).map(row).collect();
    if !rows.is_empty() {
        let columns = [
            Column::Name("WORKLOAD"),
            Column::Right("USES"),
            Column::Right("INODES"),
            Column::Right("VOLUMES"),
            Column::Right("LOGS"),
            Column::Right("LAYERS"),
        ];
        screen.table(&columns, &rows);
    }
    for trouble in &view.troubles {
        let text = format!("not known: {trouble}");
        screen.paragraph("  ", &text, Some(Paint::Warning));
    }
    for why in &view.without_feed {
        let text = format!("walked each time: {why}");
        screen.paragraph("  ", &text, Some(Paint::Faint));
    }
}

/// What one workload uses, in a line.
pub(super) fn used(disk: &DiskView) -> String {
    let parts = [
        (disk.volumes_bytes, "volumes"),
        (disk.logs_bytes, "logs"),
        (disk.rootfs_bytes, "writable layers"),
    ];
    let known = parts
        .iter()
        .filter_map(|(bytes, what)| Some((*bytes.as_ref()?, what)));
    let parts: Vec<String> = known
        .map(|(bytes, what)| format!("{} of {what}", unsigned(bytes)))
        .collect();
    let sign = if disk.partial { ", or more" } else { "" };
    match parts.as_slice() {
        [] => "unknown".to_owned(),
        parts => parts.join(", ") + sign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    #[test]
    fn what_is_unknown_is_told_as_such() {
        let mut screen = Screen::new(Style::default());
        let view = StorageView {
            folders: 2,
            round_age_ms: Some(5_000),
            workloads: vec![DiskView {
                workload: "a/b".to_owned(),
                volumes_bytes: Some(3 << 20),
                inodes: Some(7),
                partial: true,
                ..DiskView::default()
            }],
            troubles: vec!["a/b, volume /x: may not read /x".to_owned()],
            ..StorageView::default()
        };
        storage(&mut screen, &view);
        let text = screen.into_text();
        assert!(
            text.contains("Local storage: 2 folders, measured 5.0 s ago"),
            "{text}"
        );
        assert!(
            text.contains("3.0Mi or more") && text.contains("unknown"),
            "{text}"
        );
        assert!(text.contains("not known: a/b, volume /x"), "{text}");
    }

    #[test]
    fn who_has_no_containers_has_neither_logs_nor_layers_and_they_are_not_unknown() {
        let row = |folders_alone: bool| {
            let mut screen = Screen::new(Style::default());
            let view = StorageView {
                workloads: vec![DiskView {
                    workload: "a/b".to_owned(),
                    volumes_bytes: Some(3 << 20),
                    inodes: Some(7),
                    folders_alone,
                    ..DiskView::default()
                }],
                ..StorageView::default()
            };
            storage(&mut screen, &view);
            let text = screen.into_text();
            let row = text.lines().next_back().unwrap();
            row.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(row(true), ["a/b", "3.0Mi", "7", "3.0Mi", "–", "–"]);
        assert_eq!(
            row(false),
            ["a/b", "3.0Mi", "7", "3.0Mi", "unknown", "unknown"]
        );
    }
}
