// gomemcache (classic ASCII): usage: go run . HOST:PORT
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const (
	records = 40_000
	workers = 8
)

func value(key string) []byte {
	return bytes.Repeat([]byte(key+";"), 1000/(len(key)+1))
}

func must(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func want(got, expected error, what string) {
	if !errors.Is(got, expected) {
		fmt.Fprintf(os.Stderr, "%s: got %v instead of %v\n", what, got, expected)
		os.Exit(1)
	}
}

func single(cache *memcache.Client) {
	must(cache.Set(&memcache.Item{Key: "greeting", Value: []byte("hello"), Flags: 7}), "set")
	item, err := cache.Get("greeting")
	must(err, "get")
	if string(item.Value) != "hello" || item.Flags != 7 {
		must(fmt.Errorf("%q with flags %d", item.Value, item.Flags), "get")
	}
	want(cache.Add(&memcache.Item{Key: "greeting", Value: []byte("x")}), memcache.ErrNotStored, "add")
	item.Value = []byte("two")
	must(cache.CompareAndSwap(item), "cas")
	want(cache.CompareAndSwap(item), memcache.ErrCASConflict, "stale cas")
	must(cache.Append(&memcache.Item{Key: "greeting", Value: []byte("!")}), "append")
	must(cache.Touch("greeting", 1000), "touch")
	must(cache.Delete("greeting"), "delete")
	_, err = cache.Get("greeting")
	want(err, memcache.ErrCacheMiss, "get of a deleted key")
	must(cache.Set(&memcache.Item{Key: "count", Value: []byte("41")}), "set")
	count, err := cache.Increment("count", 1)
	must(err, "increment")
	if count != 42 {
		must(fmt.Errorf("%d", count), "increment")
	}
}

// Each worker has its own keys: what it reads is what it stored, or the server is wrong.
func worker(cache *memcache.Client, id int) error {
	var keys []string
	for n := 0; n < records/workers; n++ {
		key := fmt.Sprintf("g%d-%d", id, n)
		keys = append(keys, key)
		if err := cache.Set(&memcache.Item{Key: key, Value: value(key)}); err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	for from := 0; from < len(keys); from += 100 {
		batch := keys[from : from+100]
		found, err := cache.GetMulti(batch)
		if err != nil {
			return err
		}
		for _, key := range batch {
			item := found[key]
			if item == nil || !bytes.Equal(item.Value, value(key)) {
				return fmt.Errorf("%s is lost or wrong", key)
			}
		}
	}
	return nil
}

// The version of the library that this was built with.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/bradfitz/gomemcache" {
			return module.Version
		}
	}
	return "unknown"
}

// Speaks TLS with a server that the authority in file vouches for.
func overTLS(file string) func(context.Context, string, string) (net.Conn, error) {
	pem, err := os.ReadFile(file)
	must(err, "the authority's certificate")
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	return (&tls.Dialer{Config: &tls.Config{RootCAs: authorities}}).DialContext
}

func main() {
	cache := memcache.New(os.Args[1])
	protocol := "ASCII"
	if file := os.Getenv("TLS_CA"); file != "" {
		cache.DialContext = overTLS(file)
		protocol = "ASCII, TLS"
	}
	cache.Timeout = 20 * time.Second
	cache.MaxIdleConns = workers
	must(cache.Ping(), "ping")
	single(cache)
	var group sync.WaitGroup
	for id := 0; id < workers; id++ {
		group.Add(1)
		go func() {
			defer group.Done()
			must(worker(cache, id), "worker")
		}()
	}
	group.Wait()
	exercised := "get, multi-get, set, add, append, cas, touch, delete, increment, ping; 8 at once"
	fmt.Printf("client | gomemcache | %s | Go | %s | %s\n", version(), protocol, exercised)
	fmt.Printf("gomemcache: %d records and every command answered as expected\n", records)
}
