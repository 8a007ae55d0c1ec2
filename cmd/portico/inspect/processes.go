package inspect

import (
	"time"

	"portico/cmd/internal/datadir"
)

// Process is a process of portico up on this machine.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Memory is what is resident, in bytes.
	Memory  int       `json:"memory"`
	Started time.Time `json:"started"`
	// Restarts is how many times portico up started it again.
	Restarts int `json:"restarts"`
}

// Holder returns the id of the portico up that uses the folder; 0 if none does.
func (f *Folder) Holder() int { return datadir.Holder(f.Path) }
