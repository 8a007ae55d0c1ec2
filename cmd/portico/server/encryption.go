package server

import (
	"github.com/spf13/pflag"

	"portico/resource/encryption"
)

// AddEncryption adds the flags of encryption at rest, which have kube-apiserver's names.
func AddEncryption(fs *pflag.FlagSet, cfg *encryption.Config) {
	AddEncryptionFile(fs, cfg)
	fs.BoolVar(&cfg.Reload, "encryption-provider-config-automatic-reload", false, "read --encryption-provider-config again when the file changes")
}

// AddEncryptionFile adds --encryption-provider-config, for commands that read etcd.
func AddEncryptionFile(fs *pflag.FlagSet, cfg *encryption.Config) {
	fs.StringVar(&cfg.File, "encryption-provider-config", "", "EncryptionConfiguration `file`, as for kube-apiserver: which resources are encrypted in etcd, and with which keys (default: none)")
}
