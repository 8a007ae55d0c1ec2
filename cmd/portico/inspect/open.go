package inspect

import (
	"io"

	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/portico/client"
)

// Open returns a client of the gateway, by the rules of client.Flags, and the folder if it is
// that of the same installation, else nil; the folder also with an error of the kubeconfig. With --data-dir the kubeconfig is that of the folder,
// unless --kubeconfig names one; so it is for the default folder if no other kubeconfig exists.
func Open(flags *client.Flags, folder *Folder, warnings io.Writer) (*client.Client, *Folder, error) {
	if err := folder.Find(); err != nil {
		return nil, nil, err
	}
	own := folder.File("kubeconfig")
	config, err := clientcmd.LoadFromFile(own)
	there := err == nil
	if folder.named || there && !flags.Found() {
		flags.Use(own)
	}
	gateway, err := flags.Open(warnings)
	if err != nil && (folder.named || there) {
		return nil, folder, err
	}
	if err != nil {
		return nil, nil, err
	}
	if folder.named {
		return gateway, folder, nil
	}
	if there {
		for _, cluster := range config.Clusters {
			if cluster.Server == gateway.Host() {
				return gateway, folder, nil
			}
		}
	}
	return gateway, nil, nil
}
