//! Chooses the DevicePool that a target is worked on in.

use hone_crds::Platform;
use hone_crds::model_compilation::Target;

pub use crate::broker::pools::{HOST_CPU, NoPool, Offer, fits, offer, wanted_labels};
use crate::broker::pools::{
    NamespaceView, PoolView, Use, allows, describe, free, kind_for, labels_text, named,
};
use crate::children::reasons::Reason;

/// The pools that `target` may be worked on in: the one it names, else those that fit, the one that `before` names
/// first, then the cheapest with a device free, then the one with most devices free.
///
/// # Errors
/// [`NoPool`], saying what is missing, where there is none.
pub fn candidates<'a>(
    pools: &'a [PoolView],
    target: &Target,
    before: Option<&str>,
    namespace_name: &str,
    namespace: &NamespaceView,
) -> Result<Vec<&'a PoolView>, NoPool> {
    if let Some(name) = &target.pool {
        let platform = target.platform.as_ref();
        let found = named(pools, (name, Use::Compile), platform, namespace_name, namespace);
        return found
            .map(|pool| vec![pool])
            .map_err(|none| missing(none.reason, target, &none.message));
    }
    let Some(platform) = &target.platform else {
        // The schema asks for one of both.
        return Err(missing(Reason::NoMatchingPool, target, "it names no platform"));
    };
    let usable = |pool: &&PoolView| {
        !pool.foreign && fits(pool, platform) && allows(pool, namespace_name, namespace)
    };
    let mut candidates: Vec<&PoolView> = pools.iter().filter(usable).collect();
    candidates.sort_by(|a, b| {
        let was = |pool: &PoolView| before != Some(pool.name.as_str());
        let busy = |pool: &PoolView| free(pool) <= 0;
        (was(a), busy(a))
            .cmp(&(was(b), busy(b)))
            .then(price(a).total_cmp(&price(b)))
            .then(free(b).cmp(&free(a)))
            .then(a.name.cmp(&b.name))
    });
    match candidates.is_empty() {
        true => Err(no_match(pools, target, platform, namespace_name)),
        false => Ok(candidates),
    }
}

/// What a device costs; nothing where the pool does not say.
fn price(pool: &PoolView) -> f64 {
    pool.spec.price_per_hour.as_ref().map_or(0.0, hone_crds::Decimal::value)
}

fn missing(reason: Reason, target: &Target, why: &str) -> NoPool {
    NoPool { reason, message: format!("target '{}' has no pool: {why}", target.name) }
}

fn no_match(pools: &[PoolView], target: &Target, platform: &Platform, namespace: &str) -> NoPool {
    let there: Vec<String> = pools
        .iter()
        .take(8)
        .map(|pool| format!("'{}' ({})", pool.name, describe(&offer(pool))))
        .collect();
    let there = match pools.len() {
        0 => "there is no DevicePool at all".to_owned(),
        n if n > 8 => format!("of {n} pools none does, such as {}", there.join(", ")),
        _ => format!("there are {}", there.join(", ")),
    };
    let why = format!(
        "it needs a DevicePool of kind {} that allows namespace '{namespace}' and whose nodeSelector or platform says {}; {there}",
        kind_for(platform).as_str(),
        labels_text(platform),
    );
    missing(Reason::NoMatchingPool, target, &why)
}
