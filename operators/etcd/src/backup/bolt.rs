//! Reads the file in which etcd keeps its data: bbolt's, version 2. Only reads, a page at a time.
//!
//! Everything in the file is taken for somebody else's: no length and no position is believed before it was
//! held against the size of what it is in.

use std::{fs::File, os::unix::fs::FileExt as _};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// What every page begins with.
const HEADER: usize = 16;
/// The part of a meta page that its checksum is of, after the header.
const SUMMED: usize = 56;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const META: u16 = 0x04;
/// A leaf element that is a bucket.
const BUCKET: u32 = 0x01;
/// No tree of a file that fits on a disk is as deep.
const DEEPEST: usize = 64;
/// A page with what flows over. etcd's largest request is far smaller.
const LARGEST_NODE: u64 = 1 << 30;

/// Why a file cannot be read as bbolt's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is none.
    Foreign(String),
    /// It is one, and something in it is not as it was written.
    Broken(String),
    /// It is one, and its end is missing.
    Short(String),
    /// The disk cannot be read.
    Unreadable(String),
}

type Result<T> = std::result::Result<T, Flaw>;

fn broken(what: impl Into<String>) -> Flaw {
    Flaw::Broken(what.into())
}

/// A file of bbolt's.
pub(super) struct Bolt<'a> {
    file: &'a File,
    page_size: u64,
    /// How many pages there are.
    pages: u64,
    /// Where the tree of buckets begins.
    root: u64,
}

/// A tree of keys and values: on pages of its own, or, if it is small, within another's value.
pub(super) enum Bucket {
    Rooted(u64),
    Inline(Vec<u8>),
}

/// One key of a leaf.
struct Element {
    is_bucket: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

/// What a meta page says.
#[derive(Clone, Copy)]
struct Meta {
    page_size: u64,
    root: u64,
    pages: u64,
    transaction: u64,
}

/// FNV-1a, as bbolt sums its meta pages.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Meta {
    /// What the page says, if it is a meta page and as it was written.
    fn read(page: &[u8]) -> Result<Self> {
        let foreign = || Flaw::Foreign("it does not begin as a database of etcd's does".to_owned());
        let meta = page.get(HEADER..).ok_or_else(foreign)?;
        let (magic, version) = (u32_at(meta, 0), u32_at(meta, 4));
        if magic != Some(MAGIC) || u16_at(page, 8).is_none_or(|flags| flags & META == 0) {
            return Err(foreign());
        }
        if version != Some(VERSION) {
            return Err(Flaw::Foreign(format!("it is of version {version:?} of bbolt's format, and not 2")));
        }
        let sum = meta.get(..SUMMED).map(checksum);
        if sum.is_none() || sum != u64_at(meta, SUMMED) {
            return Err(broken("the checksum of its first page does not fit"));
        }
        let fields = || {
            Some(Self {
                page_size: u64::from(u32_at(meta, 8)?),
                root: u64_at(meta, 16)?,
                pages: u64_at(meta, 40)?,
                transaction: u64_at(meta, 48)?,
            })
        };
        fields().ok_or_else(foreign)
    }
}

impl<'a> Bolt<'a> {
    /// Opens the first `size` bytes of a file as a database.
    pub(super) fn open(file: &'a File, size: u64) -> Result<Self> {
        let mut page = [0; HEADER + SUMMED + 8];
        let mut meta_at = |offset: u64| {
            if offset.saturating_add(u64::try_from(page.len()).unwrap_or(u64::MAX)) > size {
                return Err(Flaw::Foreign("it is too short to be a database of etcd's".to_owned()));
            }
            file.read_exact_at(&mut page, offset).map_err(|error| Flaw::Unreadable(error.to_string()))?;
            Meta::read(&page)
        };
        let first = meta_at(0);
        // There are two, on two pages. If the first is broken, the second is where pages of the usual size end.
        let page_size = first.as_ref().map_or(4096, |meta| meta.page_size);
        let second = meta_at(page_size);
        let meta = match (first, second) {
            (Ok(first), Ok(second)) if second.transaction > first.transaction => second,
            (Ok(first), _) => first,
            (Err(_), Ok(second)) => second,
            (Err(flaw), Err(_)) => return Err(flaw),
        };
        if !meta.page_size.is_power_of_two() || !(512..=(1 << 20)).contains(&meta.page_size) {
            return Err(broken(format!("it has pages of {} bytes", meta.page_size)));
        }
        let whole =
            meta.pages.checked_mul(meta.page_size).ok_or_else(|| broken("its size makes no sense"))?;
        if size < whole {
            return Err(Flaw::Short(format!(
                "its data has {size} bytes, and {whole} were written: the end is missing"
            )));
        }
        Ok(Self { file, page_size: meta.page_size, pages: meta.pages, root: meta.root })
    }

    /// A bucket of the database, if there is one of that name.
    pub(super) fn bucket(&self, name: &str) -> Result<Option<Bucket>> {
        let mut found = None;
        self.walk(&Bucket::Rooted(self.root), &mut |element| {
            if element.is_bucket && element.key == name.as_bytes() {
                found = Some(element.value);
            }
            Ok(())
        })?;
        let Some(value) = found else { return Ok(None) };
        match u64_at(&value, 0) {
            // The page follows the bucket's own header.
            Some(0) => Ok(value.get(16..).map(|page| Bucket::Inline(page.to_vec()))),
            Some(root) => Ok(Some(Bucket::Rooted(root))),
            None => Err(broken(format!("the bucket {name} has no header"))),
        }
    }

    /// What is under a key of a bucket.
    pub(super) fn get(&self, bucket: &Bucket, wanted: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.each(bucket, |key, value| {
            if key == wanted {
                found = Some(value.to_vec());
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Looks at every key of a bucket, in order.
    pub(super) fn each(
        &self,
        bucket: &Bucket,
        mut look: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        self.walk(bucket, &mut |element| {
            if last.as_ref().is_some_and(|last| *last >= element.key) {
                return Err(broken("its keys are not in order"));
            }
            look(&element.key, &element.value)?;
            last = Some(element.key);
            Ok(())
        })
    }

    fn walk(&self, bucket: &Bucket, look: &mut dyn FnMut(Element) -> Result<()>) -> Result<()> {
        match bucket {
            Bucket::Rooted(root) => self.walk_page(*root, 0, look),
            Bucket::Inline(page) => leaf(page, look),
        }
    }

    fn walk_page(&self, id: u64, depth: usize, look: &mut dyn FnMut(Element) -> Result<()>) -> Result<()> {
        if depth > DEEPEST {
            return Err(broken("its pages lead round in a circle"));
        }
        let page = self.page(id)?;
        match u16_at(&page, 8) {
            Some(flags) if flags & LEAF != 0 => leaf(&page, look),
            Some(flags) if flags & BRANCH != 0 => {
                for number in 0..count(&page)? {
                    let child = u64_at(&page, HEADER + number * 16 + 8);
                    let child = child.ok_or_else(|| broken(format!("page {id} is cut short")))?;
                    self.walk_page(child, depth + 1, look)?;
                }
                Ok(())
            }
            flags => Err(broken(format!("page {id} is of no kind that belongs there ({flags:?})"))),
        }
    }

    /// A page, with the pages that it flows over to.
    fn page(&self, id: u64) -> Result<Vec<u8>> {
        if id < 2 || id >= self.pages {
            return Err(broken(format!("a page {id} is meant, and there are {}", self.pages)));
        }
        let offset = id * self.page_size;
        let unreadable = |error: std::io::Error| Flaw::Unreadable(error.to_string());
        let mut header = [0; HEADER];
        self.file.read_exact_at(&mut header, offset).map_err(unreadable)?;
        if u64_at(&header, 0) != Some(id) {
            return Err(broken(format!("where page {id} is to be, there is another")));
        }
        let overflow = u64::from(u32_at(&header, 12).unwrap_or_default());
        let length = (overflow + 1) * self.page_size;
        if id + overflow >= self.pages || length > LARGEST_NODE {
            return Err(broken(format!("page {id} flows over the end")));
        }
        let mut page = vec![0; usize::try_from(length).map_err(|_| broken("a page is too large"))?];
        self.file.read_exact_at(&mut page, offset).map_err(unreadable)?;
        Ok(page)
    }
}

fn count(page: &[u8]) -> Result<usize> {
    u16_at(page, 10).map(usize::from).ok_or_else(|| broken("a page has no header"))
}

fn leaf(page: &[u8], look: &mut dyn FnMut(Element) -> Result<()>) -> Result<()> {
    for number in 0..count(page)? {
        let element = element(page, HEADER + number * 16);
        look(element.ok_or_else(|| broken("an element is outside of its page"))?)?;
    }
    Ok(())
}

fn element(page: &[u8], at: usize) -> Option<Element> {
    let size = |offset| u32_at(page, at + offset).and_then(|size| usize::try_from(size).ok());
    let key_at = at.checked_add(size(4)?)?;
    let value_at = key_at.checked_add(size(8)?)?;
    let end = value_at.checked_add(size(12)?)?;
    Some(Element {
        is_bucket: u32_at(page, at)? & BUCKET != 0,
        key: page.get(key_at..value_at)?.to_vec(),
        value: page.get(value_at..end)?.to_vec(),
    })
}
