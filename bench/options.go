package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Names of the scenarios, as --only takes them.
const (
	scenarioCreate      = "create"
	scenarioGet         = "get"
	scenarioList        = "list"
	scenarioWatch       = "watch"
	scenarioDefinitions = "definitions"
)

var scenarios = []string{scenarioCreate, scenarioGet, scenarioList, scenarioWatch, scenarioDefinitions}

// options are the flags. Every scenario is bounded by a count and a time.
type options struct {
	portico    string
	dataDir    string
	kubeconfig string
	etcd       string
	only       []string
	configMaps bool
	json       bool
	profile    string
	keep       bool
	audit      bool // the gateway writes an audit log

	objects, size        int
	workers, connections int
	rounds               int
	time                 time.Duration
	gets, lists          int
	watchers, window     int
	updates              int
	definitions          int
	threads              int
	rest, limit          time.Duration
}

// defaultObjects is how many the goals for memory are about.
const defaultObjects = 5000

// maxUpdates bounds the updates of one round of watching.
const maxUpdates = 1 << 20

func (o *options) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&o.portico, "portico", "", "`program` to start an installation of its own with, in a temporary folder, for this run")
	fs.StringVar(&o.dataDir, "data-dir", "", "data `folder` of a running \"portico up\": kubeconfig, etcd and processes are found there")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that says where the installation is and who asks (default: the one in --data-dir)")
	fs.StringVar(&o.etcd, "etcd", "", "`URL` of the installation's etcd, unix:///path or http://host:port (default: the socket in --data-dir)")
	fs.StringSliceVar(&o.only, "only", scenarios, "`scenarios` to run; get, list and watch create objects first")
	fs.BoolVar(&o.configMaps, "configmaps", false, "also create, get, list and watch ConfigMaps, which the core server keeps")
	fs.BoolVar(&o.json, "json", false, "print the report as JSON")
	fs.StringVar(&o.profile, "profile", "", "`folder` for CPU profiles of gateway, core, crd and this program; they slow it all down a little")
	fs.BoolVar(&o.keep, "keep", false, "leave what was created")
	fs.IntVar(&o.objects, "objects", defaultObjects, "how many objects to create and list")
	fs.IntVar(&o.size, "size", 3500, "bytes of one object as it is served, 2000 to 1000000")
	fs.IntVar(&o.workers, "workers", 16, "how many requests at a time")
	fs.IntVar(&o.connections, "connections", 4, "how many HTTP/2 connections they share")
	fs.IntVar(&o.rounds, "rounds", 3, "how often each measurement takes its turn with its yardstick")
	fs.DurationVar(&o.time, "time", 2*time.Second, "how long one round of get or watch takes, at most; of list, ten times that")
	fs.IntVar(&o.gets, "gets", 50000, "how many GETs one round makes, at most")
	fs.IntVar(&o.lists, "lists", 48, "how many LISTs one round makes, at most")
	fs.IntVar(&o.watchers, "watchers", 300, "how many watchers")
	fs.IntVar(&o.updates, "updates", 0, "updates a second while they watch (default: as many as the watchers can follow)")
	fs.IntVar(&o.window, "window", 50, "how many updates the slowest watcher may be behind before updating pauses")
	fs.IntVar(&o.definitions, "definitions", 500, "how many CustomResourceDefinitions; a tenth of them one after the other")
	fs.DurationVar(&o.rest, "rest", 12*time.Second, "pause after which memory is read once more; 0 is none")
	fs.IntVar(&o.threads, "threads", max(1, runtime.NumCPU()/2), "how many processors this program itself may use at a time")
	fs.DurationVar(&o.limit, "limit", 5*time.Minute, "how long everything may take, without cleaning up")
}

// check refuses what cannot be run, before anything is created.
func (o *options) check() error {
	if err := o.checkPlace(); err != nil {
		return err
	}
	for _, s := range o.only {
		if !slices.Contains(scenarios, s) {
			return fmt.Errorf("--only=%s: no such scenario; there are %s", s, strings.Join(scenarios, ", "))
		}
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"objects", o.objects, 1, 100000},
		{"size", o.size, 2000, 1000000},
		{"workers", o.workers, 1, 1000},
		{"connections", o.connections, 1, 100},
		{"rounds", o.rounds, 1, 100},
		{"gets", o.gets, 1, 10000000},
		{"lists", o.lists, 1, 100000},
		{"watchers", o.watchers, 1, 10000},
		{"updates", o.updates, 0, 100000},
		{"window", o.window, 1, 100000},
		{"definitions", o.definitions, 1, 10000},
		{"threads", o.threads, 1, 1000},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("--%s=%d: choose a number from %d to %d", f.name, f.value, f.min, f.max)
		}
	}
	if o.time < 100*time.Millisecond || o.rest < 0 || o.limit < time.Second {
		return errors.New("--time is 100ms at least, --rest 0s, --limit 1s")
	}
	if o.objects < o.workers && o.runs(scenarioWatch) {
		return fmt.Errorf("--objects=%d: watch needs at least as many as --workers=%d, so that no two updates meet", o.objects, o.workers)
	}
	return nil
}

// checkPlace finds out which installation is meant.
func (o *options) checkPlace() error {
	if o.portico != "" {
		if o.dataDir != "" || o.kubeconfig != "" || o.etcd != "" {
			return errors.New("--portico starts an installation of its own: leave out --data-dir, --kubeconfig and --etcd")
		}
		return nil
	}
	if o.dataDir != "" {
		o.useDataDir()
	}
	if o.kubeconfig == "" {
		return errors.New("which installation? Name the data folder of a running \"portico up\" with --data-dir, or let --portico start one")
	}
	return nil
}

// useDataDir fills in what was not said and is in the data folder.
func (o *options) useDataDir() {
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dataDir, "kubeconfig")
	}
	socket := filepath.Join(o.dataDir, "run", "etcd.sock")
	if _, err := os.Stat(socket); err == nil && o.etcd == "" {
		if absolute, err := filepath.Abs(socket); err == nil {
			o.etcd = "unix://" + absolute
		}
	}
}

func (o *options) runs(scenario string) bool { return slices.Contains(o.only, scenario) }

// needsObjects reports whether any chosen scenario works on objects.
func (o *options) needsObjects() bool {
	return o.runs(scenarioCreate) || o.runs(scenarioGet) || o.runs(scenarioList) || o.runs(scenarioWatch)
}
