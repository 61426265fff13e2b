//! Which addresses may be fetched from: public ones, and those that are allowed by name.
//!
//! The check is on the addresses that a connection is made to, after names were resolved, so that a
//! name that changes its answer between check and use gains nothing. It holds for every redirect.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

/// What may be fetched from although it is not public.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    allowed: Vec<Allowed>,
    identity: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    Host(String),
    Network(IpAddr, u8),
    /// `s3://bucket@host`: that bucket, and for it that endpoint alone.
    Bucket {
        bucket: String,
        endpoint: String,
    },
    /// What a bucket entry opens once the bucket is known: its endpoint.
    Endpoint(String),
}

/// Where platforms hand out a pod's identity: hosts and the beginnings of paths. EKS Pod Identity, ECS, EC2, Azure, GKE.
const IDENTITY: &[(&str, &str)] = &[
    ("169.254.170.23", "/v1/credentials"),
    ("fd00:ec2::23", "/v1/credentials"),
    ("169.254.170.2", "/v2/credentials"),
    ("169.254.169.254", "/latest/api/token"),
    ("169.254.169.254", "/latest/meta-data/iam/security-credentials"),
    ("169.254.169.254", "/metadata/identity/oauth2/token"),
    ("169.254.169.254", "/computeMetadata/v1/instance/service-accounts/"),
    ("metadata.google.internal", "/computeMetadata/v1/instance/service-accounts/"),
];

/// An address that may not be fetched from.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{host}' is at {address}, which is {kind}; allow it by name, by network, or for one bucket as s3://BUCKET@HOST (--fetch-allow or HONE_FETCH_ALLOW) if that is meant"
)]
pub struct Forbidden {
    host: String,
    address: IpAddr,
    kind: &'static str,
}

impl Guard {
    /// Reads entries: a host name, an address, a network such as `10.0.0.0/8`, or a bucket with the host of its
    /// endpoint, such as `s3://models@store.example`. A bucket without a host opens nothing: the endpoint comes from
    /// the Secret of whoever compiles.
    pub fn new(entries: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let entries = entries.into_iter();
        let allowed = entries.filter_map(|entry| entry_of(entry.as_ref().trim())).collect();
        Self { allowed, identity: false }
    }

    /// The same guard; with `on`, stores may ask the platform for the pod's own identity ([`Guard::for_identity`]).
    pub fn with_identity(self, on: bool) -> Self {
        Self { identity: on, ..self }
    }

    /// Whether stores may ask the platform for the pod's own identity.
    pub fn has_identity(&self) -> bool {
        self.identity
    }

    /// The guard for a request to `url` that asks the platform for the pod's identity; none for any other request.
    ///
    /// It opens the platforms' addresses for their credential paths and nothing else, so it must never see a URL that
    /// a user had a part in: a store whose endpoint comes from a Secret is not asked about (`Place::open`).
    pub fn for_identity(url: &url::Url) -> Option<Self> {
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
        let is_asked =
            |(address, path): &&(&str, &str)| host == *address && url.path().starts_with(path);
        IDENTITY.iter().find(is_asked).filter(|_| url.scheme() == "http")?;
        let networks = IDENTITY.iter().filter_map(|(address, _)| address.parse::<IpAddr>().ok());
        let whole = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let allowed = networks.map(|address| Allowed::Network(address, whole(address))).collect();
        Some(Self { allowed, identity: false })
    }

    /// The guard for requests to a bucket (`s3://name`): its endpoint is let through where an entry names both.
    pub fn for_bucket(&self, wanted: &str) -> Self {
        let wanted = wanted.trim_end_matches('/');
        let name = wanted.rsplit('/').next().unwrap_or_default();
        let mut allowed = self.allowed.clone();
        for entry in &self.allowed {
            if let Allowed::Bucket { bucket, endpoint } = entry
                && bucket == wanted
            {
                allowed.push(Allowed::Endpoint(endpoint.clone()));
                // The bucket may be part of the host's name.
                allowed.push(Allowed::Endpoint(format!("{name}.{endpoint}")));
            }
        }
        Self { allowed, identity: self.identity }
    }

    /// Checks one address that `host` stands for.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Forbidden> {
        let address = plain(address);
        let Some(kind) = not_public(address) else { return Ok(()) };
        let allowed = self.allowed.iter().any(|a| a.covers(host, address));
        match allowed {
            true => Ok(()),
            false => Err(Forbidden { host: host.to_owned(), address, kind }),
        }
    }

    /// Lets through what a name resolved to, for a connection to exactly these addresses; all or none.
    pub fn pass(&self, host: &str, found: Vec<SocketAddr>) -> Result<Addrs, Forbidden> {
        for address in &found {
            self.check(host, address.ip())?;
        }
        Ok(Box::new(found.into_iter()))
    }

    /// Checks the host of a URL where it is an address itself; names are checked when resolved.
    pub fn check_literal(&self, url: &url::Url) -> Result<(), Forbidden> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(&address.to_string(), address.into()),
            Some(Host::Ipv6(address)) => self.check(&address.to_string(), address.into()),
            _ => Ok(()),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(guard.pass(&host, found.collect())?)
        })
    }
}

impl Allowed {
    fn covers(&self, host: &str, address: IpAddr) -> bool {
        match self {
            // Metadata services have link-local addresses: a name must not lead there, whoever resolves it.
            Self::Host(allowed) | Self::Endpoint(allowed) => {
                allowed.eq_ignore_ascii_case(host.trim_end_matches('.')) && !is_metadata(address)
            }
            Self::Network(network, prefix) => within(address, *network, *prefix),
            Self::Bucket { .. } => false,
        }
    }
}

fn entry_of(text: &str) -> Option<Allowed> {
    if text.is_empty() {
        return None;
    }
    if text.contains("://") {
        let (bucket, endpoint) = text.split_once('@')?;
        let endpoint = endpoint.trim_end_matches(['/', '.']).trim_matches(['[', ']']);
        let (bucket, endpoint) = (bucket.trim_end_matches('/').to_owned(), endpoint.to_owned());
        return (!endpoint.is_empty()).then_some(Allowed::Bucket { bucket, endpoint });
    }
    let (base, prefix) = match text.split_once('/') {
        Some((base, prefix)) => (base, Some(prefix)),
        None => (text, None),
    };
    match IpAddr::from_str(base.trim_matches(['[', ']'])) {
        Ok(address) => {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
            (prefix <= bits).then_some(Allowed::Network(address, prefix))
        }
        Err(_) => Some(Allowed::Host(text.trim_end_matches('.').to_owned())),
    }
}

/// Whether metadata services of cloud providers have such addresses.
fn is_metadata(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(v4) => {
            v4.is_link_local() || matches!(v4.octets(), [100, 100, 100, 200] | [192, 0, 0, 192])
        }
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local() || v6.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
        }
    }
}

/// IPv4 addresses written as IPv6 ones count as what they are.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn within(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let shift = bits - u32::from(prefix);
        a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
        _ => false,
    }
}

/// Why an address is not a public one.
fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => not_public_v4(v4),
        IpAddr::V6(v6) => not_public_v6(v6),
    }
}

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("an address of this machine"),
        (127, ..) => Some("a loopback address"),
        (10, ..) | (192, 168, _) => Some("a private address"),
        (172, 16..=31, _) => Some("a private address"),
        (169, 254, _) => Some("a link-local address, as metadata services have"),
        (100, 64..=127, _) => Some("a shared address of a provider"),
        (192, 0, 0) | (192, 0, 2) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            Some("a reserved address")
        }
        (224..=255, ..) => Some("a multicast or reserved address"),
        _ => None,
    }
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    // IPv4 behind a translator or a tunnel counts as what it leads to.
    let inner = |high: u16, low: u16| {
        not_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some("a loopback address"),
        [0, 0, 0, 0, 0, 0, high, low] => inner(high, low).or(Some("a reserved address")),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
        [0x64, 0xff9b, 1, ..] => Some("a private address"),
        [0x2002, high, low, ..] => inner(high, low),
        [0x2001, 0, ..] => Some("a tunnel's address"),
        [0x2001, 0xdb8, ..] => Some("a reserved address"),
        [first, ..] if first & 0xfe00 == 0xfc00 => {
            Some("a private address, as metadata services may have")
        }
        [first, ..] if first & 0xffc0 == 0xfe80 => Some("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Some("a private address"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("a multicast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(guard: &Guard, address: &str) -> bool {
        guard.check("example.org", address.parse().unwrap()).is_err()
    }

    #[test]
    fn only_public_addresses_pass() {
        let guard = Guard::default();
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "169.254.170.23",
            "100.64.0.1",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "fc00::1",
            "ff02::1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::10.0.0.1",
            "2001:db8::1",
            "fec0::1",
        ] {
            assert!(refused(&guard, address), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "8.8.8.8", "2606:4700::1111"] {
            assert!(!refused(&guard, address), "{address}");
        }
    }

    #[test]
    fn names_networks_and_buckets_are_allowed() {
        let guard = Guard::new(["10.0.0.0/8", "store.internal", "fd00::/8", "junk/99"]);
        assert!(!refused(&guard, "10.9.9.9"));
        assert!(!refused(&guard, "fd12::1"));
        assert!(refused(&guard, "192.168.0.1"));
        let inside = "192.168.0.1".parse().unwrap();
        assert!(guard.check("Store.Internal", inside).is_ok());
        assert!(guard.check("other.internal", inside).is_err());
        assert!(!refused(&Guard::new(["0.0.0.0/0"]), "127.0.0.1"));
    }

    /// The endpoint comes from a tenant's Secret: naming an allowed bucket must open no other host.
    #[test]
    fn a_bucket_opens_its_endpoint_and_nothing_else() {
        let guard = Guard::new(["s3://models@store.svc", "s3://open"]);
        let passes = |bucket: &str, host: &str, address: &str| {
            guard.for_bucket(bucket).check(host, address.parse().unwrap()).is_ok()
        };
        assert!(passes("s3://models", "store.svc", "10.1.2.3"));
        assert!(passes("s3://models/", "Models.store.svc", "10.1.2.3"));
        for (host, address) in [
            ("kubernetes.default.svc", "10.96.0.1"),
            ("169.254.169.254", "169.254.169.254"),
            ("127.0.0.1", "127.0.0.1"),
            ("other.store.svc", "10.1.2.3"),
            // A name server that answers for the endpoint gains nothing either.
            ("store.svc", "169.254.169.254"),
            ("store.svc", "fd00:ec2::254"),
            ("store.svc", "100.100.100.200"),
        ] {
            assert!(!passes("s3://models", host, address), "{host} at {address}");
        }
        assert!(!passes("s3://others", "store.svc", "10.1.2.3"));
        assert!(!passes("gs://models", "store.svc", "10.1.2.3"));
        // A bucket without its endpoint opens nothing.
        assert!(!passes("s3://open", "store.svc", "10.1.2.3"));
        // Nor does the entry open its endpoint to plain URLs.
        assert!(guard.check("store.svc", "10.1.2.3".parse().unwrap()).is_err());
    }

    #[test]
    fn a_name_never_opens_a_metadata_service() {
        let guard = Guard::new(["store.internal"]);
        assert!(guard.check("store.internal", "169.254.169.254".parse().unwrap()).is_err());
        // Whoever means it names the address.
        assert!(!refused(&Guard::new(["169.254.169.254"]), "169.254.169.254"));
    }

    /// S9: what asks the platform for the pod's identity is known by its whole address and path.
    #[test]
    fn only_questions_for_the_identity_reach_the_platform() {
        let url = |text: &str| url::Url::parse(text).unwrap();
        for asked in [
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://169.254.169.254/latest/api/token",
            "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token",
        ] {
            let guard = Guard::for_identity(&url(asked)).unwrap();
            assert!(guard.check_literal(&url(asked)).is_ok(), "{asked}");
        }
        for other in [
            "http://169.254.169.254/latest/user-data",
            "http://169.254.169.254/computeMetadata/v1/instance/attributes/",
            "http://10.0.0.1/v1/credentials",
            "https://169.254.169.254/latest/api/token",
        ] {
            assert!(Guard::for_identity(&url(other)).is_none(), "{other}");
        }
    }
}
