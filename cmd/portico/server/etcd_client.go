package server

import (
	"log/slog"

	"github.com/spf13/pflag"

	"portico/resource/etcd"
)

// AddPrefix adds --etcd-prefix.
func (f *EtcdFlags) AddPrefix(fs *pflag.FlagSet) { f.addPrefix(fs) }

// Open returns a client of the etcd that the flags name, or of own, a URL, where they name none.
func (f *EtcdFlags) Open(own string, log *slog.Logger) (*etcd.Client, error) {
	cfg := f.Config(log)
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = []string{own}
	}
	return etcd.Open(cfg)
}

// Prefix returns --etcd-prefix.
func (f *EtcdFlags) Prefix() string { return f.prefix }
