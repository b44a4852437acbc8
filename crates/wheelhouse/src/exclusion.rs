//! [`Exclusion`]: kinds that must not be worked on at the same time share a key.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::key::Key;

/// Shared by controllers whose resources belong together: a cluster, its backup,
/// its restore. While one of them is worked on under a key, the others wait.
#[derive(Clone, Default)]
pub struct Exclusion(Arc<Mutex<HashMap<Key, Vec<Waiter>>>>);

/// Called when the key is free again.
type Waiter = Box<dyn FnOnce() + Send>;

impl Exclusion {
    /// Shared by nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the key, or has `when_free` called once it can be tried again.
    pub(crate) fn take(&self, key: Key, when_free: impl FnOnce() + Send + 'static) -> Option<Exclusive> {
        let mut taken = self.0.lock();
        match taken.get_mut(&key) {
            Some(waiters) => {
                waiters.push(Box::new(when_free));
                None
            }
            None => {
                taken.insert(key.clone(), Vec::new());
                Some(Exclusive { of: self.clone(), key })
            }
        }
    }
}

/// The key is taken as long as this lives.
pub(crate) struct Exclusive {
    of: Exclusion,
    key: Key,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let waiters = self.of.0.lock().remove(&self.key);
        for waiter in waiters.into_iter().flatten() {
            waiter();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_key_is_taken_by_one_and_the_others_are_told_when_it_is_free() {
        let exclusion = Exclusion::new();
        let key = Key::namespaced("n", "db");
        let first = exclusion.take(key.clone(), || {});
        assert!(first.is_some());
        let told = Arc::new(AtomicBool::new(false));
        let tell = told.clone();
        assert!(exclusion.take(key.clone(), move || tell.store(true, Ordering::SeqCst)).is_none());
        assert!(exclusion.take(Key::namespaced("n", "other"), || {}).is_some());
        assert!(!told.load(Ordering::SeqCst));
        drop(first);
        assert!(told.load(Ordering::SeqCst));
        assert!(exclusion.take(key, || {}).is_some());
    }
}
