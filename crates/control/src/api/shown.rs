//! Records of the configuration as the API shows them, and back.
//!
//! The two are apart on purpose: how the configuration is kept and what clients were promised change at different times
//! (docs/decisions/0025-api-crate.md).

use azekura_base::IoLimits;
use azekura_model as model;

/// Something of the configuration that the API shows.
pub(super) trait Shown {
    /// As what.
    type View;

    /// As the API shows it.
    fn shown(&self) -> Self::View;
}

/// Something that a request asks for.
pub(super) trait Meant {
    /// What it is in the configuration.
    type Record;

    /// As the configuration has it.
    fn meant(self) -> Self::Record;
}

/// Kinds that have the same name, and the same variants, on both sides.
macro_rules! same {
    ($($kind:ident: $($variant:ident)+;)+) => {
        $(
            impl Shown for model::$kind {
                type View = azekura_api::$kind;

                fn shown(&self) -> azekura_api::$kind {
                    match self {
                        $(model::$kind::$variant => azekura_api::$kind::$variant,)+
                    }
                }
            }

            impl Meant for azekura_api::$kind {
                type Record = model::$kind;

                fn meant(self) -> model::$kind {
                    match self {
                        $(azekura_api::$kind::$variant => model::$kind::$variant,)+
                    }
                }
            }
        )+

        #[test]
        fn words_are_the_same_in_records_and_in_the_api() {
            $($(
                let (record, view) = (model::$kind::$variant, azekura_api::$kind::$variant);
                assert_eq!(serde_json::to_value(record).unwrap(), serde_json::to_value(view).unwrap());
            )+)+
        }
    };
}

same! {
    VolumeAccess: Exclusive Shared;
    AckRule: All Majority EachSite;
    FailureDomain: Device Host Rack Site;
    DeviceState: Up Down Draining;
    FailureKind: Stopped Lost Failing;
    SnapshotOrigin: Person Schedule Revert Resize Clone;
    BlockFlaw: Damaged Differs;
}

impl Shown for model::ClassHome {
    type View = azekura_api::ClassHome;

    fn shown(&self) -> azekura_api::ClassHome {
        azekura_api::ClassHome { site: self.site.clone(), rack: self.rack.clone() }
    }
}

impl Meant for azekura_api::ClassHome {
    type Record = model::ClassHome;

    fn meant(self) -> model::ClassHome {
        model::ClassHome { site: self.site, rack: self.rack, host: None }
    }
}

impl Shown for model::Endpoint {
    type View = azekura_api::EndpointView;

    fn shown(&self) -> azekura_api::EndpointView {
        azekura_api::EndpointView { protocol: self.protocol.clone(), address: self.address.clone(), uri: None }
    }
}

impl Shown for model::ProtectionRecord {
    type View = azekura_api::Protection;

    fn shown(&self) -> azekura_api::Protection {
        let model::ProtectionRecord { every_seconds, keep_seconds, then } = self;
        let step = |model::Thinning { every_seconds, keep_seconds }: &model::Thinning| azekura_api::Thinning {
            every_seconds: *every_seconds,
            keep_seconds: *keep_seconds,
        };
        azekura_api::Protection {
            every_seconds: *every_seconds,
            keep_seconds: *keep_seconds,
            then: then.iter().map(step).collect(),
        }
    }
}

impl Shown for IoLimits {
    type View = azekura_api::IoLimits;

    fn shown(&self) -> azekura_api::IoLimits {
        let IoLimits { iops, bytes_per_second, burst_seconds } = *self;
        azekura_api::IoLimits { iops, bytes_per_second, burst_seconds }
    }
}

impl Meant for azekura_api::IoLimits {
    type Record = IoLimits;

    fn meant(self) -> IoLimits {
        let azekura_api::IoLimits { iops, bytes_per_second, burst_seconds } = self;
        IoLimits { iops, bytes_per_second, burst_seconds }
    }
}

impl Meant for azekura_api::Thinning {
    type Record = model::Thinning;

    fn meant(self) -> model::Thinning {
        model::Thinning { every_seconds: self.every_seconds, keep_seconds: self.keep_seconds }
    }
}

impl Shown for model::ScrubTimes {
    type View = azekura_api::ScrubTimes;

    fn shown(&self) -> azekura_api::ScrubTimes {
        azekura_api::ScrubTimes { wanted: self.wanted, done: self.done, findings: self.findings }
    }
}

impl Shown for model::FoundBlockRecord {
    type View = azekura_api::FoundBlock;

    fn shown(&self) -> azekura_api::FoundBlock {
        azekura_api::FoundBlock {
            volume: self.volume.clone(),
            layer: self.layer,
            offset_bytes: self.offset_bytes,
            device: self.device,
            flaw: self.flaw.shown(),
            mended: self.mended,
            at: self.at,
        }
    }
}

impl Shown for model::ScrubRecord {
    type View = azekura_api::GroupScrubs;

    fn shown(&self) -> azekura_api::GroupScrubs {
        let (deep, light) = self.really();
        azekura_api::GroupScrubs {
            deep: deep.shown(),
            light: light.shown(),
            met: self.met,
            found: self.found.iter().map(Shown::shown).collect(),
        }
    }
}
