//go:build nfpm

// Package tools names the program that makes the packages, so that its modules are pinned.
package tools

import _ "github.com/goreleaser/nfpm/v2/cmd/nfpm"
