//! The links and routes of a cluster: pure lists of `ip` commands, and the calls
//! that carry them out.
//!
//! One bridge, in the control plane's network, joins all machines and this
//! host. The host has one link into it; its way to Services is the control plane.
//! No machine has a default route: a packet for any other place has nowhere to go.
//! Addresses of Services lead to a link that swallows everything, so that what
//! kube-proxy has not translated ends there.

use std::net::SocketAddrV4;

use crate::{
    address_plan::{AddressPlan, MAX_NODES, Range},
    command::Call,
    error::{Error, Result},
    machine::Machine,
};

/// The host's link into a cluster's network. A link's name has 15 letters at most, so it is named by slot.
pub(crate) fn host_link(plan: &AddressPlan) -> String {
    format!("wheelhouse{}", plan.slot())
}

/// Sets up the control plane's own network, with the bridge that joins everything.
pub(crate) async fn connect_control_plane(plan: &AddressPlan, machine: &Machine) -> Result<()> {
    let doing = "set up the network of the control plane";
    run_inside(machine, doing, &control_plane_commands(plan)).await?;
    allow_forwarding(machine, doing).await
}

/// Joins this host.
///
/// The link carries the cluster's unique name `owner`, so that nobody takes away another's.
pub(crate) async fn connect_host(plan: &AddressPlan, owner: &str, machine: &Machine) -> Result<()> {
    let doing = "join this host and the control plane";
    let init = machine.init().ok_or_else(|| machine.problem("init", "is not running"))?;
    let link = host_link(plan);
    let plug_in = [
        format!("link add {link} type veth peer name host netns {init}"),
        format!("link set {link} alias {owner}"),
    ];
    ip(Call::new(doing, "ip"), &plug_in).await?;
    run_inside(machine, doing, &["link set host master machines up".to_owned()]).await?;
    ip(Call::new(doing, "ip"), &host_commands(plan)).await
}

/// Joins a node's machine; the first node is 1.
pub(crate) async fn connect_node(
    plan: &AddressPlan,
    control_plane: &Machine,
    node: &Machine,
    number: u8,
) -> Result<()> {
    let doing = format!("set up the network of node {number}");
    let init = node.init().ok_or_else(|| node.problem("init", "is not running"))?;
    let port = node_port(number);
    // That of an earlier machine goes with its network, but only a moment later.
    delete_link(control_plane.call_in_network(&doing, "ip"), &port).await?;
    let plug_in = [
        format!("link add {port} type veth peer name eth0 netns {init}"),
        format!("link set {port} master machines up"),
    ];
    ip(control_plane.call_in_network(&doing, "ip"), &plug_in).await?;
    run_inside(node, &doing, &node_commands(plan, number)).await?;
    allow_forwarding(node, &doing).await
}

/// Pulls a node's plug, or puts it in again.
pub(crate) async fn set_connected(control_plane: &Machine, number: u8, connected: bool) -> Result<()> {
    let state = if connected { "up" } else { "down" };
    let doing = format!("{} node {number}", if connected { "heal" } else { "cut off" });
    run_inside(control_plane, &doing, &[format!("link set {} {state}", node_port(number))]).await
}

/// Keeps everything on a machine from one address, or no longer; twice is as good as once.
pub(crate) async fn set_reachable(machine: &Machine, address: SocketAddrV4, reachable: bool) -> Result<()> {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    for chain in ["OUTPUT", "FORWARD"] {
        let rule = [chain, "-d", &ip, "-p", "tcp", "--dport", &port, "-j", "DROP"];
        let call = |action: &str| {
            let doing = format!("{} {address}", if reachable { "reach" } else { "not reach" });
            machine.call_in_network(doing, "iptables").args(["-w", action]).args(rule)
        };
        let is_blocked = call("-C").run().await.is_ok();
        match (is_blocked, reachable) {
            (true, true) => call("-D").run().await?,
            (false, false) => call("-I").run().await?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether a node's plug is in.
pub(crate) async fn is_connected(control_plane: &Machine, number: u8) -> Result<bool> {
    let port = node_port(number);
    let shown = control_plane
        .call(format!("look at the link of node {number}"), "ip")
        .args(["-brief", "link", "show", "dev", &port])
        .output()
        .await?;
    Ok(shown.split_whitespace().nth(1).is_none_or(|state| state != "DOWN"))
}

/// Takes the host's link away, if it is the one of `owner`; with it go its routes.
pub(crate) async fn disconnect_host(plan: &AddressPlan, owner: &str) -> Result<()> {
    if owner_of_link(plan).as_deref() != Some(owner) {
        return Ok(());
    }
    delete_link(Call::new("take the host's link out of the cluster", "ip"), &host_link(plan)).await
}

/// The unique name of the cluster that a slot's link belongs to, if there is one.
pub(crate) fn owner_of_link(plan: &AddressPlan) -> Option<String> {
    let alias = std::fs::read_to_string(format!("/sys/class/net/{}/ifalias", host_link(plan))).ok()?;
    Some(alias.trim().to_owned())
}

/// One that is not there is fine.
async fn delete_link(ip: Call, link: &str) -> Result<()> {
    match ip.args(["link", "delete", "dev", link]).run().await {
        Err(Error::Command { outcome, .. }) if outcome.contains("Cannot find device") => Ok(()),
        done => done,
    }
}

/// The ranges that this host has routes to, other than by default.
pub(crate) async fn ranges_in_use() -> Result<Vec<Range>> {
    let routes = Call::new("list the routes of this host", "ip")
        .args(["-4", "route", "show", "table", "all"])
        .output()
        .await?;
    Ok(destinations(&routes))
}

fn destinations(routes: &str) -> Vec<Range> {
    let kinds =
        ["unicast", "local", "broadcast", "multicast", "blackhole", "unreachable", "prohibit", "throw"];
    routes
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| !kinds.contains(word)))
        .filter_map(Range::parse)
        .collect()
}

fn node_port(number: u8) -> String {
    format!("node-{number}")
}

fn control_plane_commands(plan: &AddressPlan) -> Vec<String> {
    let mut commands = vec![
        "link set lo up".to_owned(),
        "link add machines type bridge".to_owned(),
        format!("addr add {}/24 dev machines", plan.control_plane()),
        "link set machines up".to_owned(),
    ];
    commands.extend(swallow_services(plan));
    commands.extend((1..=MAX_NODES).map(|number| route_to_pods(plan, number)));
    commands
}

fn host_commands(plan: &AddressPlan) -> Vec<String> {
    let link = host_link(plan);
    let mut commands = vec![
        format!("addr add {}/24 dev {link}", plan.host()),
        format!("link set {link} up"),
        format!("route add {} via {}", plan.whole(), plan.control_plane()),
    ];
    // Straight to the nodes, because that is the way that pods answer: a packet filter that
    // sees only one half of a conversation takes it for broken.
    commands.extend((1..=MAX_NODES).map(|number| route_to_pods(plan, number)));
    commands
}

fn node_commands(plan: &AddressPlan, number: u8) -> Vec<String> {
    let mut commands = vec![
        "link set lo up".to_owned(),
        format!("addr add {}/24 dev eth0", plan.node(number)),
        "link set eth0 up".to_owned(),
    ];
    commands.extend(swallow_services(plan));
    commands.extend((1..=MAX_NODES).filter(|other| *other != number).map(|other| route_to_pods(plan, other)));
    commands
}

/// A bridge without ports rather than a dummy device, which not every kernel has.
fn swallow_services(plan: &AddressPlan) -> [String; 3] {
    [
        "link add services type bridge".to_owned(),
        "link set services arp off up".to_owned(),
        format!("route add {} dev services", plan.services()),
    ]
}

/// Routes to all nodes that could be there, so that a node added later changes no other.
fn route_to_pods(plan: &AddressPlan, number: u8) -> String {
    format!("route add {} via {}", plan.pods_of(number), plan.node(number))
}

async fn run_inside(machine: &Machine, doing: &str, commands: &[String]) -> Result<()> {
    ip(machine.call(doing, "ip"), commands).await
}

async fn ip(call: Call, commands: &[String]) -> Result<()> {
    call.args(["-batch", "-"]).input(commands.join("\n")).run().await
}

async fn allow_forwarding(machine: &Machine, doing: &str) -> Result<()> {
    machine.call(doing, "busybox").args(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]).run().await?;
    // Frames between machines are no business of the control plane's packet filter; only some kernels ask it.
    let bridge_filter = "net.bridge.bridge-nf-call-iptables=0";
    machine.call(doing, "busybox").args(["sysctl", "-e", "-q", "-w", bridge_filter]).run().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_command() -> Vec<String> {
        let plan = AddressPlan::of_slot(3).unwrap();
        let mut commands = control_plane_commands(&plan);
        commands.extend(host_commands(&plan));
        commands.extend(node_commands(&plan, 1));
        commands
    }

    #[test]
    fn no_machine_has_a_route_to_anywhere_but_its_own_cluster() {
        let whole = AddressPlan::of_slot(3).unwrap().whole();
        for command in every_command().iter().filter(|command| command.starts_with("route")) {
            let destination = command.split(' ').nth(2).and_then(Range::parse).unwrap();
            assert!(destination.overlaps(&whole), "{command}");
            assert_ne!("0.0.0.0/0", destination.to_string(), "{command}");
        }
    }

    #[test]
    fn a_node_reaches_the_pods_of_all_others_and_swallows_untranslated_services() {
        let commands = node_commands(&AddressPlan::of_slot(0).unwrap(), 1);
        assert!(commands.contains(&"route add 198.18.17.0/24 via 198.18.0.12".to_owned()));
        assert!(!commands.iter().any(|command| command.contains("198.18.16.0/24")));
        assert!(commands.contains(&"route add 198.18.4.0/22 dev services".to_owned()));
    }

    #[test]
    fn the_hosts_routes_are_read_whatever_their_kind_and_the_default_is_left_out() {
        let found = destinations(
            "default via 192.0.2.1 dev eth0\n\
             192.0.2.0/24 dev eth0 proto kernel scope link\n\
             unreachable 198.19.0.0/16 metric 5\n\
             local 127.0.0.1 dev lo table local\n",
        );
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(vec!["192.0.2.0/24", "198.19.0.0/16", "127.0.0.1/32"], found);
    }
}
