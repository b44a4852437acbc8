//! What a process has used, as the kernel tells in `/proc`.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// The unit of times in `/proc/PID/stat`: a hundredth of a second on every architecture of today.
const TICK: Duration = Duration::from_millis(10);

/// The memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// Resident now and not backed by a file: heap and stacks.
    pub anonymous: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

/// The processor time, user and system, that a process has used so far.
///
/// # Errors
/// When there is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    cpu_time_in(&text).with_context(|| format!("{path} has no processor times: {text}"))
}

/// The memory of a process now.
///
/// # Errors
/// When there is no such process.
pub fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    memory_in(&text).with_context(|| format!("{path} does not tell the memory:\n{text}"))
}

/// How many threads a process has.
///
/// # Errors
/// When there is no such process.
pub fn threads(pid: u32) -> Result<usize> {
    let path = format!("/proc/{pid}/task");
    Ok(fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count())
}

/// Fields 14 and 15. The second one, the program's name, may have spaces and ends with the last bracket.
fn cpu_time_in(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(11);
    let user: u32 = times.next()?.parse().ok()?;
    let system: u32 = times.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

fn memory_in(status: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kibibytes * 1024)
    };
    Some(Memory { resident: bytes("VmRSS")?, anonymous: bytes("RssAnon")?, peak: bytes("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_system_whatever_the_program_is_called() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 8 0 100 2000 300";
        assert_eq!(Some(Duration::from_millis(1750)), cpu_time_in(stat));
        assert_eq!(None, cpu_time_in("42 (short) S 1"));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    30 kB\nVmRSS:\t    20 kB\nRssAnon:\t    10 kB\n";
        let expected = Memory { resident: 20 << 10, anonymous: 10 << 10, peak: 30 << 10 };
        assert_eq!(Some(expected), memory_in(status));
        assert_eq!(None, memory_in("Name:\tzombie\n"));
    }

    #[test]
    fn this_process_has_a_usage() {
        cpu_time(std::process::id()).unwrap();
        assert!(memory(std::process::id()).unwrap().resident > 0);
        assert!(threads(std::process::id()).unwrap() > 0);
    }
}
