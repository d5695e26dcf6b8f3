"""Configuration generation at cluster scale, on resources and pricing oracles a caller gives."""
