//! Records of earlier schemas: what a line of each becomes in the next one.
//!
//! Always true: a line is brought to the current schema one schema at a time, and says the same there.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use crate::records::{Log, MAX_LINE_BYTES, RecordsError, SCHEMA, file_error, parse};

/// The oldest schema that is read.
pub const OLDEST: u32 = 1;

/// What changes a line from one schema to the next; the first is that of [`OLDEST`].
type Step = fn(&mut Value);

/// All of them.
pub const STEPS: &[Step] = &[rename_unrolled_points, without_a_nest];

/// A line of schema `from`, which is at least [`OLDEST`] and older than the current one, in the current one.
pub fn to_current(mut line: Value, from: u32) -> Value {
    // A list of one number, too, reads as a line's schema.
    if line.is_object() {
        STEPS[(from - OLDEST) as usize..].iter().for_each(|step| step(&mut line));
        line["schema"] = SCHEMA.into();
    }
    line
}

/// How many lines of a file were brought to the current schema, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Lines of an older schema.
    pub changed: usize,
    /// All records of the file.
    pub records: usize,
}

/// Writes the file of records `name` of `folder` again in the current schema, as a whole or not at all; lines that are no
/// record stay as they are. A file without older lines is not touched.
///
/// # Errors
/// A file that cannot be read or written, or that another run writes.
pub fn migrate(folder: &Path, name: &str) -> Result<Migrated, RecordsError> {
    let path = folder.join(name);
    // Nobody may append to the file that is replaced.
    let _log = Log::open(folder, name)?;
    let file = std::fs::File::open(&path).map_err(file_error(&path, "read"))?;
    let mut reader = BufReader::new(file);
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(file_error(folder, "written"))?;
    let mut migrated = Migrated { changed: 0, records: 0 };
    loop {
        let mut bytes = Vec::new();
        // A line that is too long for a record is copied in parts, none of which is one.
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes);
        if read.map_err(file_error(&path, "read"))? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes);
        if let Ok(record) = parse(line.trim()) {
            // Plain data always has a JSON form.
            let current = serde_json::to_string(&record).unwrap_or_default() + "\n";
            migrated.records += 1;
            if schema(line.trim()) != Some(SCHEMA) {
                migrated.changed += 1;
                bytes = current.into_bytes();
            }
        }
        new.write_all(&bytes).map_err(file_error(&path, "written"))?;
    }
    if migrated.changed > 0 {
        let permissions = reader.get_ref().metadata().map(|metadata| metadata.permissions());
        permissions
            .and_then(|permissions| new.as_file().set_permissions(permissions))
            .map_err(file_error(&path, "written"))?;
        new.as_file().sync_all().map_err(file_error(&path, "written"))?;
        new.persist(&path).map_err(|error| file_error(&path, "replaced")(error.error))?;
    }
    Ok(migrated)
}

fn schema(line: &str) -> Option<u32> {
    let value: Value = serde_json::from_str(line).ok()?;
    value["schema"].as_u64()?.try_into().ok()
}

/// Schema 1 called the decision on how many points of a sum stand in a row without a loop "written out points".
fn rename_unrolled_points(line: &mut Value) {
    let decisions = line.get_mut("decisions").and_then(Value::as_array_mut);
    for choice in decisions.into_iter().flatten() {
        if choice[0] == "written out points" {
            choice[0] = "unrolled points".into();
        }
    }
}

/// Schema 2 kept no loop nests: a line without one stays what it is, and programs of that time would refuse a line with one.
fn without_a_nest(_: &mut Value) {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::records::read_folder;

    const OLD: &str = concat!(
        r#"{"schema":1,"kind":"winner","time":5,"program":"p","target":"t","machine":"m","threads":1,"#,
        r#""template":"contraction","decisions":[["written out points",2],["tasks",16]],"class":"Ok","#,
        r#""nanoseconds":12.5,"features":[0.1]}"#
    );

    #[test]
    fn an_older_line_says_the_same_in_the_current_schema() {
        let record = parse(OLD).unwrap();
        assert_eq!(record.schema, SCHEMA);
        let names: Vec<&str> = record.decisions.iter().map(|choice| choice.0.as_str()).collect();
        assert_eq!(names, ["unrolled points", "tasks"]);
        assert_eq!((record.nanoseconds, &record.features[..]), (Some(12.5), &[0.1f32][..]));
    }

    #[test]
    fn what_only_looks_like_an_older_line_is_refused() {
        for line in ["[1]", "{\"schema\":1}", "{\"schema\":1,\"decisions\":[7,[],{}]}"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_file_is_written_again_once_and_keeps_what_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(MAX_LINE_BYTES as usize + 9);
        let current = serde_json::to_string(&parse(OLD).unwrap()).unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, format!("{OLD}\n\nnot a record\n{long}\n{current}\n")).unwrap();
        let (before, _) = read_folder(folder.path()).unwrap();
        let migrated = migrate(folder.path(), "a.jsonl").unwrap();
        assert_eq!(migrated, Migrated { changed: 1, records: 2 });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{current}\n\nnot a record\n{long}\n{current}\n"));
        assert_eq!(read_folder(folder.path()).unwrap().0, before);
        assert_eq!(migrate(folder.path(), "a.jsonl").unwrap().changed, 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_another_run_writes_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.jsonl"), format!("{OLD}\n")).unwrap();
        let _writer = Log::open(folder.path(), "a.jsonl").unwrap();
        let refused = migrate(folder.path(), "a.jsonl").unwrap_err();
        assert!(matches!(refused, RecordsError::Busy { .. }), "{refused}");
        assert!(
            std::fs::read_to_string(folder.path().join("a.jsonl")).unwrap().contains("written out")
        );
    }
}
