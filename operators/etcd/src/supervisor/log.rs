//! The log of a member, read before etcd reads it.
//!
//! etcd mends a log whose last entry was not written whole: it cuts off what follows the last good one, none of which
//! anybody was told is there. It takes an entry with a nonsensical length for such a one too, wherever it is, and
//! then cuts off entries that were acknowledged, and goes on as if nothing had been. Whoever has such a log must not
//! vote. Whatever else is wrong with a log, etcd says so itself and ends.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read as _},
    path::{Path, PathBuf},
};

/// No entry is as long as this: etcd takes requests of a few megabytes at most.
const TOO_LONG: u64 = 1 << 30;
/// How much is read at a time.
const BUFFER: usize = 1 << 20;

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

/// Where the last file of a log, the only one that etcd mends, has a length that etcd never wrote.
///
/// # Errors
/// When it cannot be read.
pub(super) fn nonsense(files: &[PathBuf]) -> io::Result<Option<String>> {
    let Some(last) = files.last() else { return Ok(None) };
    let mut file = BufReader::with_capacity(BUFFER, File::open(last)?);
    let mut position = 0;
    let mut length = [0; 8];
    loop {
        match file.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            outcome => outcome?,
        }
        let entry = entry_length(u64::from_le_bytes(length));
        if entry >= TOO_LONG {
            let name = last.file_name().unwrap_or_default().display();
            return Ok(Some(format!("the entry at {position} of {name} claims to be {entry} bytes long")));
        }
        if entry == 0 {
            return Ok(None);
        }
        position += 8 + entry;
        let Ok(entry) = i64::try_from(entry) else { return Ok(None) };
        file.seek_relative(entry)?;
    }
}

/// The seven lower bytes are the length; the highest says whether bytes fill it up to a multiple of eight, and how
/// many.
fn entry_length(field: u64) -> u64 {
    let padding = if field >> 63 == 1 { (field >> 56) & 7 } else { 0 };
    (field & (u64::MAX >> 8)) + padding
}

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
