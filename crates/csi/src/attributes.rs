//! What a VolumeAttributesClass says: limits that can be changed while a volume is used.

use std::collections::HashMap;

use azekura_api::{IoLimits, Period};
use azekura_base::Size;
use tonic::Status;

use crate::Outcome;

/// The parameters of a VolumeAttributesClass. A StorageClass may have them, too.
pub(crate) const KNOWN: [&str; 3] = ["iops", "bandwidth", "burst"];

/// Reads one of [`KNOWN`] into `limits`. False when it is another one.
pub(crate) fn read_one(limits: &mut IoLimits, of: &str, name: &str, value: &str) -> Outcome<bool> {
    let bad = |words: &str| Status::invalid_argument(format!("the {of}'s parameter {name} is '{value}': {words}"));
    match name {
        "iops" => {
            let iops = value.parse().map_err(|_| bad("it is a number of requests a second, such as 1000"))?;
            limits.iops = Some(iops);
        }
        "bandwidth" => {
            let bytes: Size = value.parse().map_err(|_| bad("it is a number of bytes a second, such as 100MiB"))?;
            limits.bytes_per_second = Some(bytes.bytes());
        }
        "burst" => {
            let period: Period = value.parse().map_err(|_| bad("it is a time, such as 10s"))?;
            limits.burst_seconds = u32::try_from(period.0).unwrap_or(u32::MAX);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads the parameters of a VolumeAttributesClass; one that is not known is refused.
pub(crate) fn read(given: &HashMap<String, String>) -> Outcome<IoLimits> {
    let mut limits = IoLimits::default();
    for (name, value) in given {
        if !read_one(&mut limits, "VolumeAttributesClass", name, value)? {
            return Err(Status::invalid_argument(format!(
                "the VolumeAttributesClass has a parameter '{name}' that this driver does not know: it knows {}",
                KNOWN.join(", ")
            )));
        }
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(given: &[(&str, &str)]) -> Outcome<IoLimits> {
        read(&given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn known_ones_are_read() {
        let limits = IoLimits { iops: Some(1000), bytes_per_second: Some(100 << 20), burst_seconds: 60 };
        assert_eq!(given(&[("iops", "1000"), ("bandwidth", "100MiB"), ("burst", "1m")]).unwrap(), limits);
        assert_eq!(given(&[]).unwrap(), IoLimits::default());
    }

    #[test]
    fn others_are_refused_by_name() {
        for (name, value) in
            [("IOPS", "1"), ("iops", "many"), ("bandwidth", "wide"), ("burst", "long"), ("copies", "2")]
        {
            let status = given(&[(name, value)]).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(name), "{}", status.message());
        }
    }
}
