//! Reports for people and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use comfy_table::Table;
use serde_json::{Value, json};

use crate::store::check::{Counts, Finding, Findings, Report, Severity};
use crate::store::repair::{Action, Repaired, Step};

/// Tables for people.
///
/// # Errors
/// Standard output's.
pub(super) fn check_tables(report: &Report) -> io::Result<()> {
    let mut text = format!("{}\n{}\n", head(report), verdict(&report.findings));
    push_findings(&mut text, report);
    print(&text)
}

/// One document.
///
/// # Errors
/// Standard output's.
pub(super) fn check_json(report: &Report) -> io::Result<()> {
    print(&format!("{}\n", report_json(report)))
}

/// Tables for people; of each kind of step `limit` are shown.
///
/// # Errors
/// Standard output's.
pub(super) fn repair_tables(done: &Repaired, limit: usize) -> io::Result<()> {
    let mut text = format!("{}\n", head(&done.before));
    match (done.steps.is_empty(), done.applied) {
        (true, _) => text += "nothing to repair\n",
        (false, false) => text += "would be done with --apply:\n",
        (false, true) => text += "done:\n",
    }
    let mut table = table(&["STEP", "FILE", "WHAT"]);
    for (action, (steps, total)) in grouped(&done.steps, limit) {
        for step in &steps {
            table.add_row([action.id().to_owned(), relative(&done.before.root, &step.path), step.text.clone()]);
        }
        if total > steps.len() {
            table.add_row([action.id().to_owned(), String::new(), format!("and {} more", total - steps.len())]);
        }
    }
    if !done.steps.is_empty() {
        let _ = writeln!(text, "{table}"); // to a text: cannot fail
    }
    if let Some(kept) = &done.kept {
        let _ = writeln!(text, "what was replaced is kept in {}", kept.display());
    }
    match &done.after {
        Some(after) => {
            let _ = writeln!(text, "afterwards: {}", verdict(&after.findings));
            push_findings(&mut text, after);
        }
        None => push_findings(&mut text, &done.before),
    }
    print(&text)
}

/// One document; of each kind of step `limit` are in it.
///
/// # Errors
/// Standard output's.
pub(super) fn repair_json(done: &Repaired, limit: usize) -> io::Result<()> {
    let steps: Vec<Value> = grouped(&done.steps, limit)
        .into_iter()
        .map(|(action, (steps, total))| {
            let shown: Vec<Value> = steps.iter().map(|step| json!({"path": path_text(&step.path), "text": step.text})).collect();
            json!({"action": action.id(), "total": total, "shown": shown})
        })
        .collect();
    let document = json!({
        "store": path_text(&done.before.root),
        "applied": done.applied,
        "steps": steps,
        "kept": done.kept.as_deref().map(path_text),
        "before": report_json(&done.before),
        "after": done.after.as_ref().map(report_json),
    });
    print(&format!("{document}\n"))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn grouped(steps: &[Step], limit: usize) -> BTreeMap<Action, (Vec<&Step>, usize)> {
    let mut groups: BTreeMap<Action, (Vec<&Step>, usize)> = BTreeMap::new();
    for step in steps {
        let (shown, total) = groups.entry(step.action).or_default();
        *total += 1;
        if shown.len() < limit {
            shown.push(step);
        }
    }
    groups
}

fn head(report: &Report) -> String {
    let Counts { log_files, min_physical_offset, max_physical_offset, records, queues, units, index_files, index_entries, .. } =
        report.counts;
    format!(
        "{}: {records} records in {log_files} files, physical offsets {min_physical_offset} to {max_physical_offset}; {units} units in {queues} \
         queues; {index_entries} entries in {index_files} index files; {} ms",
        report.root.display(),
        report.counts.ms
    )
}

/// One line: is it damaged?
fn verdict(findings: &Findings) -> String {
    let kinds =
        |wanted: Severity| findings.groups().filter(|(severity, ..)| *severity == wanted).map(|(.., group)| group.total).sum::<u64>();
    let (errors, warnings) = (kinds(Severity::Error), kinds(Severity::Warning));
    match findings.worst() {
        Some(Severity::Error) => format!("damaged: {errors} errors, {warnings} warnings"),
        Some(Severity::Warning) => format!("not damaged, {warnings} warnings"),
        _ => "clean".to_owned(),
    }
}

fn push_findings(text: &mut String, report: &Report) {
    let mut table = table(&["SEVERITY", "KIND", "COUNT", "WHERE", "WHAT", "DO"]);
    let mut is_empty = true;
    for (severity, kind, group) in report.findings.groups() {
        for finding in &group.shown {
            is_empty = false;
            table.add_row([
                severity.text().to_owned(),
                kind.id().to_owned(),
                finding.count.to_string(),
                place(report, finding),
                finding.text.clone(),
                finding.remedy.text().to_owned(),
            ]);
        }
        if group.hidden > 0 {
            let more = format!("and {} more findings, {} in all", group.hidden, group.total);
            table.add_row([severity.text(), kind.id(), "", "", more.as_str(), ""]);
        }
    }
    if !is_empty {
        let _ = writeln!(text, "{table}"); // to a text: cannot fail
    }
}

/// File, position, queue.
fn place(report: &Report, finding: &Finding) -> String {
    let mut place = relative(&report.root, &finding.path);
    if let Some(position) = finding.position {
        let _ = write!(place, " @{position}"); // to a text: cannot fail
    }
    if let Some((topic, queue_id)) = &finding.queue {
        let _ = write!(place, " {topic}/{queue_id}");
    }
    if let Some(offset) = finding.queue_offset {
        let _ = write!(place, " #{offset}");
    }
    place
}

fn relative(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).ok().filter(|inside| !inside.as_os_str().is_empty());
    inside.unwrap_or(path).display().to_string()
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(head.iter().copied());
    table
}

fn report_json(report: &Report) -> Value {
    let Counts {
        log_files,
        min_physical_offset,
        max_physical_offset,
        records,
        long_topic_records,
        sealed_records,
        queues,
        units,
        index_files,
        index_entries,
        bytes,
        ms,
    } = report.counts;
    let findings: Vec<Value> = report
        .findings
        .groups()
        .map(|(severity, kind, group)| {
            let shown: Vec<Value> = group.shown.iter().map(finding_json).collect();
            json!({"kind": kind.id(), "severity": severity.text(), "total": group.total, "shown": shown, "hidden": group.hidden})
        })
        .collect();
    json!({
        "store": path_text(&report.root),
        "clean": report.findings.is_clean(),
        "damaged": report.findings.is_damaged(),
        "worst": report.findings.worst().map(Severity::text),
        "counts": {
            "logFiles": log_files,
            "minPhysicalOffset": min_physical_offset,
            "maxPhysicalOffset": max_physical_offset,
            "records": records,
            "longTopicRecords": long_topic_records,
            "sealedRecords": sealed_records,
            "queues": queues,
            "units": units,
            "indexFiles": index_files,
            "indexEntries": index_entries,
            "bytes": bytes,
            "ms": ms,
        },
        "sizes": {
            "mappedFileSizeCommitLog": report.sizes.commit_log,
            "mappedFileSizeConsumeQueue": report.sizes.consume_queue,
            "maxHashSlotNum": report.sizes.index.0,
            "maxIndexNum": report.sizes.index.1,
        },
        "findings": findings,
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "path": path_text(&finding.path),
        "position": finding.position,
        "physicalOffset": finding.physical_offset,
        "topic": finding.queue.as_ref().map(|(topic, _)| topic),
        "queueId": finding.queue.as_ref().map(|(_, queue_id)| queue_id),
        "queueOffset": finding.queue_offset,
        "count": finding.count,
        "text": finding.text,
        "remedy": finding.remedy.text(),
    })
}

#[cfg(test)]
mod tests {
    use crate::store::check::{Kind, QueueBounds, Remedy, Sizes};

    use super::*;

    fn report() -> Report {
        let mut findings = Findings::new(1);
        let path = Path::new("/s/consumequeue/T/0/00000000000000000000");
        for at in [20, 40] {
            let finding = Finding::new(Kind::UnitMissing, Severity::Error, path, "no unit 1", Remedy::Repair);
            findings.add(finding.queue("T", 0).queue_offset(1).at(at).count(3));
        }
        findings.add(Finding::new(Kind::Lost, Severity::Note, Path::new("/s/lost"), "originals", Remedy::Nothing));
        Report {
            root: "/s".into(),
            findings,
            counts: Counts { records: 7, ..Counts::default() },
            sizes: Sizes { commit_log: 1, consume_queue: 20, index: (3, 4) },
            queues: vec![QueueBounds { topic: "T".to_owned(), queue_id: 0, min_offset: 0, max_offset: 1 }],
        }
    }

    #[test]
    fn people_see_where_and_what_to_do() {
        let report = report();
        let mut text = verdict(&report.findings) + "\n";
        push_findings(&mut text, &report);
        let words =
            ["damaged: 6 errors, 0 warnings", "unitMissing", "consumequeue/T/0/00000000000000000000 @20 T/0 #1", "petrel store repair"];
        for expected in words.iter().chain(&["and 1 more findings, 6 in all", "note"]) {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn scripts_see_all_of_it() {
        let document = report_json(&report());
        assert_eq!(
            (document["clean"].as_bool(), document["damaged"].as_bool(), document["worst"].as_str()),
            (Some(false), Some(true), Some("error"))
        );
        let group = &document["findings"][0];
        assert_eq!((group["kind"].as_str(), group["total"].as_u64(), group["hidden"].as_u64()), (Some("unitMissing"), Some(6), Some(1)));
        let finding = &group["shown"][0];
        assert_eq!(
            (finding["topic"].as_str(), finding["queueOffset"].as_i64(), finding["position"].as_u64()),
            (Some("T"), Some(1), Some(20))
        );
        assert!(finding["physicalOffset"].is_null());
        assert_eq!(document["counts"]["records"].as_u64(), Some(7));
    }
}
