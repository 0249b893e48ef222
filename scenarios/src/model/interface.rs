//! What every network interface of a guest can be given: a namespace's own one, and devices on top of it.

use toml::Spanned;

/// The settings of an interface, wherever they were said.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// What `ip link set` takes, and the values that were given.
    pub sizes: [(&'static str, Option<u32>); 5],
    /// Addresses with prefix length.
    pub addresses: &'a [Spanned<String>],
}

/// Declares the table of an interface: its own fields, and those that all interfaces have.
///
/// They are fields of one struct rather than of a flattened one, so that an unknown field is still refused, and at
/// its place.
macro_rules! interface {
    ($(#[$attribute:meta])* pub struct $name:ident { $($own:tt)* }) => {
        #[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$attribute])*
        pub struct $name {
            $($own)*
            /// Addresses with prefix length.
            #[serde(default)]
            #[schemars(with = "Vec<String>", inner(regex(pattern = $crate::schema::rules::PREFIX)))]
            pub addresses: Vec<toml::Spanned<String>>,
            /// MTU to set.
            pub mtu: Option<u32>,
            /// `gso_max_size` to set: the largest IPv6 packet that the stack makes.
            pub gso_max_size: Option<u32>,
            /// `gso_ipv4_max_size` to set, the same for IPv4.
            pub gso_ipv4_max_size: Option<u32>,
            /// `gro_max_size` to set: the largest IPv6 packet that received frames are merged into.
            pub gro_max_size: Option<u32>,
            /// `gro_ipv4_max_size` to set, the same for IPv4.
            pub gro_ipv4_max_size: Option<u32>,
            /// Features to switch with `ethtool -K`, such as `tx-udp_tnl-segmentation = false`.
            #[serde(default)]
            pub features: std::collections::BTreeMap<String, bool>,
        }

        impl $name {
            /// What is set on the interface.
            pub fn settings(&self) -> $crate::model::Settings<'_> {
                $crate::model::Settings {
                    sizes: [
                        ("mtu", self.mtu),
                        ("gso_max_size", self.gso_max_size),
                        ("gso_ipv4_max_size", self.gso_ipv4_max_size),
                        ("gro_max_size", self.gro_max_size),
                        ("gro_ipv4_max_size", self.gro_ipv4_max_size),
                    ],
                    addresses: &self.addresses,
                }
            }

            /// Gives it an address with prefix length, such as `2001:db8::1/64`.
            #[must_use]
            pub fn address(mut self, address: impl Into<String>) -> Self {
                self.addresses.push($crate::build::unplaced(address));
                self
            }

            /// Sets the MTU.
            #[must_use]
            pub fn mtu(self, mtu: u32) -> Self {
                Self { mtu: Some(mtu), ..self }
            }

            /// Sets the largest packets that the stack makes, for IPv6 and with `ipv4` for IPv4 as well.
            #[must_use]
            pub fn gso(self, bytes: u32, ipv4: bool) -> Self {
                Self { gso_max_size: Some(bytes), gso_ipv4_max_size: ipv4.then_some(bytes), ..self }
            }

            /// Sets the largest packets that received frames are merged into, for IPv6 and with `ipv4` for IPv4 as
            /// well.
            #[must_use]
            pub fn gro(self, bytes: u32, ipv4: bool) -> Self {
                Self { gro_max_size: Some(bytes), gro_ipv4_max_size: ipv4.then_some(bytes), ..self }
            }

            /// Switches a feature with `ethtool -K`.
            #[must_use]
            pub fn feature(mut self, name: impl Into<String>, on: bool) -> Self {
                self.features.insert(name.into(), on);
                self
            }
        }
    };
}

pub(super) use interface;
