"""hilserver: virtual hydraulics on a real servo valve (hardware in the loop)."""
