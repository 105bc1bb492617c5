//! The messages and services of CSI 1.13, made from `proto/csi.proto` by `tools/csi-proto`.

/// What was made.
mod made {
    #![allow(missing_docs, missing_debug_implementations, clippy::all, clippy::pedantic, clippy::unwrap_used)]
    include!("../proto/csi.v1.generated");
}

pub(crate) use made::*;

#[cfg(test)]
mod tests {
    #[test]
    fn the_code_is_made_from_the_file_beside_it() {
        let hash = blake3::hash(include_bytes!("../proto/csi.proto")).to_hex();
        let head = include_str!("../proto/csi.v1.generated").lines().next().unwrap_or_default();
        let how = "cargo run --manifest-path tools/csi-proto/Cargo.toml";
        assert!(
            head.ends_with(hash.as_str()),
            "proto/csi.proto has changed since csi.v1.generated was made of it: {how}"
        );
    }
}
