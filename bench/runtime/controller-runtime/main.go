// A small operator on controller-runtime, to be measured: it keeps one ConfigMap for every Widget.
//
// Its command line and what it prints are the contract of docs/benchmarks.md, which every contestant keeps.
package main

import (
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// settings are the command line. The flag --kubeconfig is controller-runtime's own.
type settings struct {
	workers int
	expect  int
	tuned   bool
}

func main() {
	var settings settings
	flag.IntVar(&settings.workers, "workers", 1, "how many reconciles run at once")
	flag.IntVar(&settings.expect, "expect", 0, "after how many distinct resources to print that it has settled; 0 for never")
	flag.BoolVar(&settings.tuned, "tuned", false, "strip managed fields from the cache, and let reads wait for own writes")
	flag.Parse()

	if err := run(settings); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(settings settings) error {
	ctrl.SetLogger(zap.New())
	manager, err := newManager(settings)
	if err != nil {
		return err
	}

	report := newReport(settings.expect)
	reconciler := &widgetReconciler{Client: manager.GetClient(), scheme: manager.GetScheme()}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Widget{}).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: settings.workers}).
		Complete(report.wrap(reconciler))
	if err != nil {
		return fmt.Errorf("cannot set the controller up: %w", err)
	}

	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		return fmt.Errorf("the manager ended: %w", err)
	}
	report.stats()
	return nil
}

// newManager makes a manager that serves nothing and elects no leader. GetConfig turns the client's own rate
// limit off, which is controller-runtime's default.
func newManager(settings settings) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot register the core types: %w", err)
	}
	addToScheme(scheme)

	options := ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	}
	if settings.tuned {
		options.Cache.DefaultTransform = cache.TransformStripManagedFields()
		options.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}
	}

	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("cannot make a manager: %w", err)
	}
	return manager, nil
}
