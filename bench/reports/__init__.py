"""The reports of docs/reports: what each part measures, its figures as JSON, and its pages."""
