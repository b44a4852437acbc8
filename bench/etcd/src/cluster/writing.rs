//! [`Writing`]: clients that write all the time, and when they were told that it is written.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use etcd_operator::etcd::{Client, Tcp};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::stage::Seats;

/// So many write at the same time.
const CLIENTS: usize = 8;
/// Who has waited for so long tries again, elsewhere if there is another address.
const PATIENCE: Duration = Duration::from_millis(250);
/// From one write of a client to the next. All of them together write every few milliseconds.
const PAUSE: Duration = Duration::from_millis(20);
/// So many writes show that it goes on.
const SOME: usize = 20;

/// Where clients write to.
#[derive(Clone)]
pub(super) enum To {
    /// This address, behind which whoever is ready is.
    Service(String),
    /// The members of a cluster, each at its own address: whoever does not answer is left for the next.
    Members(Arc<Seats>),
}

impl To {
    async fn addresses(&self) -> Result<Vec<String>> {
        match self {
            Self::Service(address) => Ok(vec![address.clone()]),
            Self::Members(seats) => {
                Ok(seats.now().await?.into_iter().filter_map(|seat| seat.address).collect())
            }
        }
    }
}

/// Clients at work; they end with this.
pub(super) struct Writing {
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    _clients: JoinSet<()>,
}

impl Writing {
    /// Clients begin to write there.
    pub(super) fn start(to: &To) -> Self {
        let acknowledged = Arc::<Mutex<Vec<_>>>::default();
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let (to, acknowledged) = (to.clone(), acknowledged.clone());
            clients.spawn(async move {
                let mut tries = number;
                loop {
                    // While nobody can be asked where to write, nobody writes: that is part of the pause.
                    let there = to.addresses().await.unwrap_or_default();
                    let address = there.get(tries % there.len().max(1));
                    if let Some(address) = address {
                        write_while_it_works(address, number, &acknowledged).await;
                    }
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Self { acknowledged, _clients: clients }
    }

    /// Waits until more is written.
    pub(super) async fn goes_on(&self, patience: Duration) -> Result<()> {
        let (begun, before) = (Instant::now(), self.acknowledged.lock().len());
        while self.acknowledged.lock().len() < before + SOME {
            if begun.elapsed() > patience {
                bail!("nothing was written within {patience:?}");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// What was before does not count.
    pub(super) fn forget(&self) {
        let mut acknowledged = self.acknowledged.lock();
        let last = acknowledged.pop();
        acknowledged.clear();
        acknowledged.extend(last);
    }

    /// The longest time between two writes that were acknowledged.
    pub(super) fn longest_pause(&self) -> Result<Duration> {
        let mut all = self.acknowledged.lock().clone();
        all.sort();
        let pauses = all.iter().zip(all.iter().skip(1)).map(|(one, next)| next.duration_since(*one));
        match pauses.max() {
            Some(longest) => Ok(longest),
            None => bail!("nothing was written"),
        }
    }
}

/// Writes over one connection until a write fails.
async fn write_while_it_works(address: &str, number: usize, acknowledged: &Mutex<Vec<Instant>>) {
    let connecting = Client::connect(Arc::new(Tcp), address, PATIENCE);
    let Ok(Ok(client)) = tokio::time::timeout(PATIENCE, connecting).await else { return };
    let key = format!("bench/{number}");
    while client.put(&key, "written").await.is_ok() {
        acknowledged.lock().push(Instant::now());
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_pause_is_between_two_neighbours_in_time() {
        let at = Instant::now();
        let times = [0, 700, 100, 150].map(|milliseconds| at + Duration::from_millis(milliseconds));
        let acknowledged = Arc::new(Mutex::new(times.to_vec()));
        let writing = Writing { acknowledged, _clients: JoinSet::new() };
        assert_eq!(writing.longest_pause().unwrap(), Duration::from_millis(550));
        writing.forget();
        assert!(writing.longest_pause().is_err());
    }
}
