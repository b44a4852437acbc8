//! Act: what etcd lets its members do: go back to an older version, and take writes again.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{
    StreamExt as _,
    future::{self, join_all},
    stream,
};
use tonic::Code;
use wheelhouse::Result;

use super::{Change, connect, failed, superseded};
use crate::{
    asking::Listed,
    etcd::{self, AlarmType, Client, Dial, DowngradeAction},
    size::Size,
    version::Version,
};

/// How full the data of a member may be for writes to be taken again, in hundredths of its quota: more
/// would soon be too much again.
pub(crate) const ROOM_PERCENT: u64 = 90;

/// So many entries are written at once to fill logs, for so long at the most, and so many of them together.
const FILLED_AT_ONCE: u32 = 11_000;
const FILLED_FOR: Duration = Duration::from_secs(20);
const ASKED_TOGETHER: usize = 32;

pub(super) async fn allow_downgrade(change: &Change, client: &Client, to: Version) -> Result<()> {
    match client.downgrade(DowngradeAction::Enable, &to.minor_text()).await {
        // It was allowed before: to which version is seen in what the members say.
        Err(error) if error.says("downgrade job in progress") => Ok(()),
        outcome => outcome.map_err(|error| failed(change, error)),
    }
}

/// etcd says of one version only that the cluster could go back to it: of the one before what the cluster works as. That
/// tells what it works as, confirmed by a quorum.
async fn could_go_back(client: &Client, to: Version) -> etcd::Result<bool> {
    match client.downgrade(DowngradeAction::Validate, &to.minor_text()).await {
        Ok(()) => Ok(true),
        Err(error) if error.says("downgrade job in progress") => Ok(true),
        Err(error) if error.says("invalid downgrade target version") => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) async fn check_upgrade(change: &Change, client: &Client, to: Version) -> Result<()> {
    let two_before = Version { minor: to.minor.saturating_sub(2), ..to };
    match could_go_back(client, two_before).await {
        Ok(true) => Ok(()),
        // 3.4 cannot be asked.
        Err(etcd::Error::Refused { code: Code::Unimplemented, .. }) => Ok(()),
        Ok(false) => Err(superseded(change, "it works as an older one yet".to_owned())),
        Err(error) => Err(failed(change, error)),
    }
}

pub(super) async fn check_downgrade(change: &Change, client: &Client, to: Version) -> Result<()> {
    match could_go_back(client, to).await {
        Ok(false) => Ok(()),
        Ok(true) => Err(superseded(change, "it works as a newer one yet".to_owned())),
        Err(error) => Err(failed(change, error)),
    }
}

pub(super) async fn cancel_downgrade(change: &Change, client: &Client) -> Result<()> {
    match client.downgrade(DowngradeAction::Cancel, "").await {
        Err(error) if error.says("no inflight downgrade") => Ok(()),
        outcome => outcome.map_err(|error| failed(change, error)),
    }
}

/// Entries that change nothing: etcd asks for alarms by way of its log. It takes a snapshot after every ten thousand
/// entries, and what is in a snapshot is not read from the log again. People may want more or fewer (`options.snapshotCount`): it
/// is done again until the members say that it was enough.
pub(super) async fn fill_logs(change: &Change, client: &Client) -> Result<()> {
    let begun = Instant::now();
    let mut asking = stream::iter(0..FILLED_AT_ONCE)
        .take_while(|_| future::ready(begun.elapsed() < FILLED_FOR))
        .map(|_| client.alarms())
        .buffer_unordered(ASKED_TOGETHER);
    while let Some(answer) = asking.next().await {
        answer.map_err(|error| failed(change, error))?;
    }
    Ok(())
}

/// Only for space that ran out, and only if every member that etcd lists has room again. Data that is corrupt stays
/// so until a person has looked.
pub(super) async fn take_back_no_space(
    change: &Change,
    listed: &[Listed],
    client: &Client,
    dialer: &Arc<dyn Dial>,
    quota: Size,
) -> Result<()> {
    let has_room = rooms(change, dialer, quota).await;
    if let Some(full) = listed.iter().find(|member| has_room.get(&member.id.0) != Some(&true)) {
        return Err(superseded(change, format!("{} is not known to have room", full.id)));
    }
    let alarms = client.alarms().await.map_err(|error| failed(change, error))?;
    for alarm in alarms.iter().filter(|alarm| alarm.alarm() == AlarmType::NoSpace) {
        let outcome = client.disarm(alarm.member_id, AlarmType::NoSpace).await;
        outcome.map_err(|error| failed(change, error))?;
    }
    Ok(())
}

/// Whether the members have room again, by their IDs.
async fn rooms(change: &Change, dialer: &Arc<dyn Dial>, quota: Size) -> BTreeMap<u64, bool> {
    let asking = change.through.iter().map(|address| async move {
        let status = connect(change, dialer, address).await.ok()?.status().await.ok()?;
        let its_own = Some(Size::said(status.db_size_quota)).filter(|own| own.0 > 0);
        let room = its_own.unwrap_or(quota).percent(ROOM_PERCENT);
        Some((status.header.unwrap_or_default().member_id, Size::said(status.db_size) <= room))
    });
    join_all(asking).await.into_iter().flatten().collect()
}
