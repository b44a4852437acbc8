//! The log of a member, read before etcd reads it.
//!
//! etcd mends a log whose last entry was not written whole: it cuts off what follows the last good one, none of which
//! anybody was told is there. It takes an entry with a nonsensical length for such a one too, wherever it is, and
//! then cuts off entries that were acknowledged, and goes on as if nothing had been. Whoever has such a log must not
//! vote: one with a length that no entry can have, or with one that takes others in. Whatever else is wrong with a log, etcd says so itself and ends.
//!
//! Before 3.6 etcd wrote some entries, such as what each member is called, in the format of its second version. 3.7 cannot read
//! them, and ends where it finds one behind the last snapshot of its log: see [`has_old_entries`].

use std::{
    fs::{self, File},
    io::{self, BufReader, Read as _, Seek as _},
    path::{Path, PathBuf},
};

use prost::Message as _;

/// No entry is as long as this: people can let etcd take requests of 64 MiB at most.
const TOO_LONG: u64 = 1 << 27;
/// How much is read at a time.
const BUFFER: usize = 1 << 20;

/// What a log consists of.
#[derive(Clone, PartialEq, prost::Message)]
struct Record {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(bytes = "vec", tag = "3")]
    data: Vec<u8>,
}

const ENTRY: i64 = 2;
const SNAPSHOT: i64 = 5;

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    /// Anything but 0 is a change of who the members are.
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Snapshot {
    #[prost(uint64, tag = "1")]
    index: u64,
}

/// The files of a log in their order. None if there is no folder.
///
/// # Errors
/// When that cannot be read.
pub(super) fn files(data: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(data.join("member/wal")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "wal") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a log has entries behind its last snapshot that only 3.6 and what was before it can read. What cannot be
/// read as a log ends it: that is etcd's business.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn has_old_entries(files: &[PathBuf]) -> io::Result<bool> {
    let (mut last_old, mut snapshot) = (0, 0);
    for path in files {
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        while let Some(record) = next_record(&mut file)? {
            match record.kind {
                ENTRY => {
                    let entry = Entry::decode(record.data.as_slice()).unwrap_or_default();
                    if entry.kind == 0 && is_old(&entry.data) {
                        last_old = entry.index.max(last_old);
                    }
                }
                SNAPSHOT => {
                    snapshot =
                        Snapshot::decode(record.data.as_slice()).unwrap_or_default().index.max(snapshot);
                }
                _ => {}
            }
        }
    }
    Ok(last_old > snapshot)
}

fn next_record(file: &mut BufReader<File>) -> io::Result<Option<Record>> {
    let mut field = [0; 8];
    match file.read_exact(&mut field) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        outcome => outcome?,
    }
    let field = u64::from_le_bytes(field);
    let (length, with_padding) = (field & LENGTH, entry_length(field));
    if length == 0 || with_padding >= TOO_LONG {
        return Ok(None);
    }
    let mut content = Vec::new();
    let read = file.by_ref().take(with_padding).read_to_end(&mut content)?;
    let whole = u64::try_from(read).is_ok_and(|read| read == with_padding);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let content = content.get(..length).filter(|_| whole);
    Ok(content.and_then(|content| Record::decode(content).ok()))
}

/// A request of the second version begins with its number and with what is to be done, in words.
fn is_old(entry: &[u8]) -> bool {
    let Some(after_number) = entry.strip_prefix(&[0x08]) else { return false };
    let length = after_number.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    let method = after_number.get(length..).unwrap_or_default();
    OLD_METHODS.iter().any(|words| {
        let field = [&[0x12, u8::try_from(words.len()).unwrap_or_default()], words.as_bytes()].concat();
        method.starts_with(&field)
    })
}

const OLD_METHODS: [&str; 6] = ["POST", "PUT", "DELETE", "QGET", "GET", "SYNC"];

/// Where the last file of a log, the only one that etcd mends, has a length that etcd never wrote.
///
/// # Errors
/// When it cannot be read.
pub(super) fn nonsense(files: &[PathBuf]) -> io::Result<Option<String>> {
    let Some(last) = files.last() else { return Ok(None) };
    let name = last.file_name().unwrap_or_default().display();
    let mut file = BufReader::with_capacity(BUFFER, File::open(last)?);
    let size = file.get_ref().metadata()?.len();
    let (mut position, mut latest) = (0, None);
    let mut field = [0; 8];
    loop {
        match file.read_exact(&mut field) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            outcome => outcome?,
        }
        let entry = entry_length(u64::from_le_bytes(field));
        if entry >= TOO_LONG {
            return Ok(Some(format!("the entry at {position} of {name} claims to be {entry} bytes long")));
        }
        if entry == 0 {
            break;
        }
        latest = Some((position, u64::from_le_bytes(field)));
        position += 8 + entry;
        let ahead = i64::try_from(entry).map_err(io::Error::other)?;
        file.seek_relative(ahead)?;
        if position > size {
            break;
        }
    }
    // What was not written whole is the last thing that was written. Where whole entries are within it, its length is
    // none that etcd wrote: those it would cut off with it.
    let Some((begin, field)) = latest else { return Ok(None) };
    let mut content = Vec::new();
    file.seek(io::SeekFrom::Start(begin + 8))?;
    file.take(entry_length(field)).read_to_end(&mut content)?;
    let length = usize::try_from(field & LENGTH).unwrap_or(usize::MAX);
    let is_whole = content.get(..length).is_some_and(|content| Record::decode(content).is_ok());
    Ok((!is_whole && has_entries(&content))
        .then(|| format!("the entry at {begin} of {name} claims to be so long that others are within it")))
}

/// Whether entries of a log are there. All of them begin at a multiple of eight.
fn has_entries(content: &[u8]) -> bool {
    let is_one = |begin: usize| {
        let rest = content.get(begin..)?;
        let (field, rest) = rest.split_first_chunk()?;
        let field = u64::from_le_bytes(*field);
        let whole = rest.get(..usize::try_from(entry_length(field)).ok()?)?;
        let record = Record::decode(whole.get(..usize::try_from(field & LENGTH).ok()?)?).ok()?;
        let entry = Entry::decode(record.data.as_slice()).ok().filter(|_| record.kind == ENTRY)?;
        (entry.index > 0).then_some(())
    };
    (0..content.len()).step_by(8).any(|begin| is_one(begin).is_some())
}

/// The seven lower bytes are the length; the highest says whether bytes fill it up to a multiple of eight, and how
/// many.
fn entry_length(field: u64) -> u64 {
    let padding = if field >> 63 == 1 { (field >> 56) & 7 } else { 0 };
    (field & LENGTH) + padding
}

const LENGTH: u64 = u64::MAX >> 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn log(fields: &[(u64, usize)]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("member/wal");
        fs::create_dir_all(&logs).unwrap();
        let content: Vec<u8> = fields
            .iter()
            .flat_map(|(field, bytes)| [field.to_le_bytes().to_vec(), vec![7; *bytes]].concat())
            .collect();
        fs::write(logs.join("0000000000000000-0000000000000000.wal"), [0xff; 8]).unwrap();
        fs::write(logs.join("0000000000000001-0000000000000009.wal"), content).unwrap();
        fs::write(logs.join("0.tmp"), [0xff; 8]).unwrap();
        let files = files(folder.path()).unwrap();
        (folder, files)
    }

    #[test]
    fn entries_up_to_where_nothing_is_written_yet_are_sensible() {
        let (_folder, files) = log(&[(16, 16), (0x8300_0000_0000_0005, 8), (0, 64)]);
        assert_eq!(files.len(), 2);
        assert_eq!(nonsense(&files).unwrap(), None);
    }

    #[test]
    fn an_entry_that_was_not_written_whole_is_left_to_etcd() {
        let (_folder, files) = log(&[(16, 16), (1 << 20, 10)]);
        assert_eq!(nonsense(&files).unwrap(), None);
        let (_folder, files) = log(&[]);
        assert_eq!(nonsense(&files).unwrap(), None);
    }

    /// A log of records, as etcd writes them.
    fn log_of(records: &[Record]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0000000000000000-0000000000000000.wal");
        let mut content = Vec::new();
        for record in records {
            let record = record.encode_to_vec();
            let padding = (8 - record.len() % 8) % 8;
            let flag = if padding == 0 { 0 } else { (0x80 | padding as u64) << 56 };
            content.extend((record.len() as u64 | flag).to_le_bytes());
            content.extend(record);
            content.extend(vec![0; padding]);
        }
        content.extend([0; 64]);
        fs::write(&path, content).unwrap();
        (folder, vec![path])
    }

    fn entry(index: u64, data: &[u8]) -> Record {
        Record { kind: ENTRY, data: Entry { kind: 0, index, data: data.to_vec() }.encode_to_vec() }
    }

    fn snapshot(index: u64) -> Record {
        Record { kind: SNAPSHOT, data: Snapshot { index }.encode_to_vec() }
    }

    /// A length that became a larger one takes in what follows: up to where nothing is written yet, or farther than the file
    /// goes. etcd takes that for an entry that was not written whole.
    #[test]
    fn a_length_that_takes_in_what_follows_is_found() {
        let records = [entry(1, b"one"), entry(2, b"another"), entry(3, b"the last")];
        let told = |length: Option<u64>| {
            let (_folder, files) = log_of(&records);
            let mut content = fs::read(&files[0]).unwrap();
            if let Some(length) = length {
                content[..8].copy_from_slice(&length.to_le_bytes());
            }
            fs::write(&files[0], content).unwrap();
            nonsense(&files).unwrap()
        };
        assert_eq!(told(None), None);
        let size: u64 =
            8 * 3 + records.iter().map(|record| record.encoded_len().next_multiple_of(8) as u64).sum::<u64>();
        for length in [size, 1 << 20, 1 << 26] {
            let told = told(Some(length)).unwrap();
            assert!(told.starts_with("the entry at 0 of "), "{told}");
        }
        // The last one was not written whole: nothing is behind it.
        let (_folder, files) = log_of(&records);
        let mut content = fs::read(&files[0]).unwrap();
        let end = content.len() - 64;
        content[end - 8..end].fill(0);
        fs::write(&files[0], content).unwrap();
        assert_eq!(nonsense(&files).unwrap(), None);
    }

    #[test]
    fn entries_of_before_3_6_are_found_behind_the_last_snapshot_only() {
        // Number 300, then the method, then a path; and a put of today, which begins with a number, too.
        let old = b"\x08\xac\x02\x12\x03PUT\x1a\x0a/0/members/";
        let new = b"\x08\xac\x02\x22\x06\x0a\x01a\x12\x01b";
        let has = |records: &[Record]| {
            let (_folder, files) = log_of(records);
            has_old_entries(&files).unwrap()
        };
        assert!(has(&[snapshot(0), entry(1, new), entry(2, old), entry(3, new)]));
        assert!(!has(&[snapshot(0), entry(1, old), entry(2, new), snapshot(2), entry(3, new)]));
        assert!(has(&[snapshot(0), entry(1, new), snapshot(1), entry(2, old)]));
        assert!(!has(&[snapshot(0), entry(1, new), entry(2, b"")]));
        assert!(!has(&[]));
    }

    #[test]
    fn a_length_that_nobody_wrote_is_found_wherever_it_is() {
        let (_folder, files) =
            log(&[(0x8300_0000_0000_0005, 8), (u64::from_le_bytes(*b"not what"), 100), (16, 16)]);
        let told = nonsense(&files).unwrap().unwrap();
        assert!(
            told.starts_with("the entry at 16 of 0000000000000001-0000000000000009.wal claims to be "),
            "{told}"
        );
    }
}
