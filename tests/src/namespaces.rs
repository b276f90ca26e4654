//! A network of its own for each node, with cables that can be pulled.
//!
//! ```text
//!   node 1 ──┐
//!   node 2 ──┼── bridge ── the test
//!   node 3 ──┘
//! ```
//!
//! Each node lives in a network namespace; its cable ends at a bridge in a further one. Whatever is
//! beside a node in its namespace reaches it without the cable.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::cluster::Place;

/// The test's address in the network's subnet.
const OWN_HOST: u8 = 254;
/// A link address of this machine's making (its second bit says so) that no end has.
const LINK_OF_NOBODY: &str = "02:00:00:00:de:ad";

/// A network of namespaces. Dropped, it is taken down.
#[derive(Debug)]
pub struct Network {
    name: String,
    subnet: [u8; 3],
    nodes: u8,
}

impl Network {
    /// A network with so many places, from 1.
    ///
    /// # Panics
    /// The machine does not permit it: it needs root and the command `ip` of iproute2.
    #[must_use]
    pub fn new(nodes: u8) -> Self {
        static NETWORKS: AtomicU8 = AtomicU8::new(0);
        let count = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let network = Self {
            // The kernel takes 15 bytes of it as the name of a cable's end.
            name: format!("fm{}-{count}", std::process::id()),
            // 198.18.0.0/15 is for tests of networks; no machine is reached through it.
            subnet: [198, 18 + (high & 1), low.wrapping_add(count)],
            nodes,
        };
        let bridge = network.bridge();
        ip(&["netns", "add", &bridge]);
        ip(&["-n", &bridge, "link", "add", "bridge", "type", "bridge"]);
        ip(&["-n", &bridge, "link", "set", "bridge", "up"]);
        for node in 1..=nodes {
            let namespace = network.namespace(node);
            ip(&["netns", "add", &namespace]);
            ip(&["-n", &namespace, "link", "set", "lo", "up"]);
            network.plug(&namespace, "cable", &format!("node{node}"));
            let subnet = network.in_subnet(node);
            ip(&["-n", &namespace, "addr", "add", &subnet, "dev", "cable"]);
            ip(&["-n", &namespace, "link", "set", "cable", "up"]);
        }
        network.plug_test();
        network
    }

    /// Where the node runs.
    #[must_use]
    pub fn place(&self, node: u8) -> Place {
        let [a, b, c] = self.subnet;
        Place {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, node)),
            namespace: Some(self.namespace(node)),
            environment: Vec::new(),
        }
    }

    /// All places, by node.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        (1..=self.nodes).map(|node| self.place(node)).collect()
    }

    /// Pulls the node's cable.
    pub fn cut(&self, node: u8) {
        let end = format!("node{node}");
        ip(&["-n", &self.bridge(), "link", "set", &end, "down"]);
    }

    /// Plugs the node's cable in again.
    pub fn mend(&self, node: u8) {
        let end = format!("node{node}");
        ip(&["-n", &self.bridge(), "link", "set", &end, "up"]);
    }

    /// Has what one node sends to another get lost on its way, while it hears the other.
    ///
    /// The sender takes the other to be at a link address that nobody has: its packets leave, and
    /// arrive nowhere, as on a cable of which one wire is broken.
    pub fn cut_one_way(&self, from: u8, to: u8) {
        let to = self.place(to).address.to_string();
        ip(&[
            "-n",
            &self.namespace(from),
            "neigh",
            "replace",
            &to,
            "lladdr",
            LINK_OF_NOBODY,
            "dev",
            "cable",
            "nud",
            "permanent",
        ]);
    }

    /// Has what one node sends to another arrive again.
    pub fn mend_one_way(&self, from: u8, to: u8) {
        let to = self.place(to).address.to_string();
        let from = self.namespace(from);
        ip(&["-n", &from, "neigh", "delete", &to, "dev", "cable"]);
    }

    fn bridge(&self) -> String {
        format!("{}-bridge", self.name)
    }

    fn namespace(&self, node: u8) -> String {
        format!("{}-node{node}", self.name)
    }

    fn in_subnet(&self, host: u8) -> String {
        let [a, b, c] = self.subnet;
        format!("{a}.{b}.{c}.{host}/24")
    }

    /// A cable from a namespace to the bridge.
    fn plug(&self, namespace: &str, end: &str, bridge_end: &str) {
        let bridge = self.bridge();
        ip(&[
            "link", "add", end, "netns", namespace, "type", "veth", "peer", "name", bridge_end,
            "netns", &bridge,
        ]);
        self.join(bridge_end);
    }

    /// A cable from the test's own network to the bridge.
    fn plug_test(&self) {
        let bridge = self.bridge();
        ip(&[
            "link", "add", &self.name, "type", "veth", "peer", "name", "test", "netns", &bridge,
        ]);
        self.join("test");
        let subnet = self.in_subnet(OWN_HOST);
        ip(&["addr", "add", &subnet, "dev", &self.name]);
        ip(&["link", "set", &self.name, "up"]);
    }

    fn join(&self, bridge_end: &str) {
        let bridge = self.bridge();
        ip(&[
            "-n", &bridge, "link", "set", bridge_end, "master", "bridge", "up",
        ]);
    }
}

impl Drop for Network {
    /// What is not there any more is no fault here.
    fn drop(&mut self) {
        let _ = run(&["link", "delete", &self.name]);
        for node in 1..=self.nodes {
            let _ = run(&["netns", "delete", &self.namespace(node)]);
        }
        let _ = run(&["netns", "delete", &self.bridge()]);
    }
}

fn ip(arguments: &[&str]) {
    if let Err(what) = run(arguments) {
        panic!(
            "ip {}: {what}\nThis test lays a network of namespaces: it needs root and the \
             command `ip` (Debian: iproute2).",
            arguments.join(" ")
        );
    }
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
