//go:build exporter

// Package exporter names the program that scripts/tools.sh builds here, so that its modules are pinned.
package exporter

import _ "github.com/prometheus/memcached_exporter/cmd/memcached_exporter"
