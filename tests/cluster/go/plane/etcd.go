package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startLimit bounds the wait for the one member to elect itself.
const startLimit = 60 * time.Second

// runEtcd runs one etcd member until it is told to end, and returns the exit status.
//
// Its flags are a subset of etcd's own, so that the scripts can start either this or an etcd that a
// person brought along.
func runEtcd(args []string) int {
	fs := flag.NewFlagSet("etcd", flag.ExitOnError)
	cfg := embed.NewConfig()
	fs.StringVar(&cfg.Dir, "data-dir", "etcd", "data directory")
	client := fs.String("listen-client-urls", "http://127.0.0.1:2379", "client URL (plain HTTP, loopback only)")
	_ = fs.String("advertise-client-urls", "", "accepted for compatibility; the listening URL is advertised")
	peer := fs.String("listen-peer-urls", "http://127.0.0.1:2380", "peer URL")
	fs.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "do not sync to disk: for state that is thrown away")
	fs.Int64Var(&cfg.QuotaBackendBytes, "quota-backend-bytes", 2<<30, "largest size of the database in bytes")
	fs.StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn or error")
	_ = fs.Parse(args)
	if err := serveEtcd(cfg, *client, *peer); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serveEtcd(cfg *embed.Config, client, peer string) error {
	c, err := url.Parse(client)
	if err != nil {
		return err
	}
	p, err := url.Parse(peer)
	if err != nil {
		return err
	}
	cfg.Name = "etcd"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*c}, []url.URL{*c}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*p}, []url.URL{*p}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "5m"
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer member.Close()
	select {
	case <-member.Server.ReadyNotify():
	case <-time.After(startLimit):
		return fmt.Errorf("not ready after %s", startLimit)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-end:
		return nil
	case err := <-member.Err():
		return err
	}
}
