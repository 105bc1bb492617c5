//go:build tools

// Names the suite of the Kubernetes project, so that go.mod keeps its version and go.sum its hash.
package main

import _ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
