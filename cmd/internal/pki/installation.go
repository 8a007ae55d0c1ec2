package pki

import (
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The names of the CAs of etcd in the folder of the authorities. Members trust one for each
// other and clients trust it for members; members trust the other for clients, which cannot
// be members.
const (
	etcdAuthority       = "etcd-ca"
	etcdClientAuthority = "etcd-client-ca"
)

// Installation names the hosts of processes that share no folder.
type Installation struct {
	// Dir is the folder that the folders of the processes are in.
	Dir string
	// Gateway, Core and CRD are names and addresses of the servers, at least one of each.
	Gateway, Core, CRD []string
	// Etcd are those of etcd's members; none: etcd gets no certificates.
	Etcd []string
	// Server is the URL of the gateway in the administrator's kubeconfig.
	Server string
	// Now is the current time; zero: time.Now().
	Now time.Time
}

// folder is what one process is given: certificates and copies of files of the authorities.
type folder struct {
	name   string
	leaves []folderLeaf
	copies []string
}

type folderLeaf struct {
	by   *authority
	name string
	want leaf
}

// EnsureInstallation makes the folder authorities, and one for each of gateway, core, crd,
// etcd and admin with everything that it needs and no key that it does not. It renews
// certificates that are about to expire or lack a host, and keeps all others. Only one
// process may call it for a folder at a time.
func EnsureInstallation(in Installation) error {
	if in.Now.IsZero() {
		in.Now = time.Now()
	}
	authorities := filepath.Join(in.Dir, "authorities")
	folders, err := in.folders(authorities)
	if err != nil {
		return err
	}
	for _, f := range folders {
		dir := filepath.Join(in.Dir, f.name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create certificate folder: %w", err)
		}
		for _, l := range f.leaves {
			if err := l.by.ensureLeaf(pairIn(dir, l.name), l.want, in.Now, DefaultLeafLifetime); err != nil {
				return err
			}
		}
		for _, name := range f.copies {
			data, err := os.ReadFile(filepath.Join(authorities, name))
			if err != nil {
				return fmt.Errorf("copy file of the authorities: %w", err)
			}
			if err := writeFile(filepath.Join(dir, name), data); err != nil {
				return err
			}
		}
	}
	admin := filepath.Join(in.Dir, "admin")
	return WriteKubeconfig(filepath.Join(admin, "kubeconfig"), in.Server, filepath.Join(admin, "serving-ca.crt"), pairIn(admin, "admin"))
}

// folders makes the authorities, and says what is in the folder of each process.
func (in *Installation) folders(authorities string) ([]folder, error) {
	all, err := ensureAuthorities(authorities, in.Now, DefaultAuthorityLifetime)
	if err != nil {
		return nil, err
	}
	if err := ensureSigningKey(signingKeyIn(authorities)); err != nil {
		return nil, err
	}
	serving, client, proxy := all[ServingAuthority], all[ClientAuthority], all[FrontProxyAuthority]
	server := func(name string, hosts []string) folderLeaf {
		return folderLeaf{serving, name, leaf{subject: pkix.Name{CommonName: name}, server: hosts}}
	}
	user := func(by *authority, name, user string, groups ...string) folderLeaf {
		return folderLeaf{by, name, leaf{subject: pkix.Name{CommonName: user, Organization: groups}}}
	}
	processes := []folder{
		{"gateway", []folderLeaf{server("gateway", in.Gateway), user(proxy, FrontProxyName, FrontProxyName)},
			[]string{"serving-ca.crt", "client-ca.crt", "front-proxy-ca.crt", signingKeyName + ".pub"}},
		{"core", []folderLeaf{server("core", in.Core), user(client, "core-client", CoreName)},
			[]string{"serving-ca.crt", "front-proxy-ca.crt", signingKeyName + ".key"}},
		{"crd", []folderLeaf{server("crd", in.CRD), user(client, "crd-client", CRDName)},
			[]string{"serving-ca.crt", "front-proxy-ca.crt"}},
	}
	admin := folder{"admin", []folderLeaf{user(client, "admin", AdminName, adminGroup)}, []string{"serving-ca.crt"}}
	if len(in.Etcd) == 0 {
		return append(processes, admin), nil
	}
	members, err := ensureAuthority(pairIn(authorities, etcdAuthority), "portico-"+etcdAuthority, in.Now, DefaultAuthorityLifetime)
	if err != nil {
		return nil, err
	}
	clients, err := ensureAuthority(pairIn(authorities, etcdClientAuthority), "portico-"+etcdClientAuthority, in.Now, DefaultAuthorityLifetime)
	if err != nil {
		return nil, err
	}
	for i := range processes {
		p := &processes[i]
		p.leaves = append(p.leaves, user(clients, "etcd-client", "portico-"+p.name))
		p.copies = append(p.copies, etcdAuthority+".crt")
	}
	admin.leaves = append(admin.leaves, user(clients, "etcd-root", "root"))
	admin.copies = append(admin.copies, etcdAuthority+".crt")
	etcd := folder{"etcd", []folderLeaf{{members, "etcd", leaf{subject: pkix.Name{CommonName: "etcd"}, server: in.Etcd, client: true}}},
		[]string{etcdAuthority + ".crt", etcdClientAuthority + ".crt"}}
	return append(processes, etcd, admin), nil
}
